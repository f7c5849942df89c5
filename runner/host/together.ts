/**
 * Runs several beginnings at once. The first that fails aborts the others; all have ended when this throws its error,
 * so that nothing is being acquired behind the back of a clean-up.
 */
export async function together<T extends readonly unknown[]>(
  parent: AbortSignal,
  begin: (signal: AbortSignal) => { [K in keyof T]: Promise<T[K]> },
): Promise<T> {
  const controller = new AbortController();
  const abort = (): void => controller.abort(parent.reason);
  if (parent.aborted) abort();
  parent.addEventListener('abort', abort, { once: true });
  let first: { error: unknown } | undefined;
  try {
    const works = begin(controller.signal) as readonly Promise<unknown>[];
    const values = await Promise.all(
      works.map((work) =>
        work.catch((error: unknown) => {
          first ??= { error };
          controller.abort(error);
        }),
      ),
    );
    if (first) throw first.error;
    return values as unknown as T;
  } finally {
    parent.removeEventListener('abort', abort);
  }
}
