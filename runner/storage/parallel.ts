/**
 * Does `work` on each item, at most `atOnce` at a time. The first failure stops the rest, and is thrown when nothing runs
 * any more.
 */
export async function inParallel<T>(
  items: Iterable<T>,
  atOnce: number,
  work: (item: T, signal: AbortSignal) => Promise<void>,
  parent?: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const onParent = (): void => stop.abort(parent?.reason);
  if (parent?.aborted) onParent();
  parent?.addEventListener('abort', onParent, { once: true });
  const queue = items[Symbol.iterator]();
  const worker = async (): Promise<void> => {
    for (let next = queue.next(); !next.done; next = queue.next()) {
      stop.signal.throwIfAborted();
      await work(next.value, stop.signal);
    }
  };
  try {
    await Promise.all(Array.from({ length: atOnce }, () => worker().catch((error) => stop.abort(error))));
    stop.signal.throwIfAborted();
  } finally {
    parent?.removeEventListener('abort', onParent);
  }
}
