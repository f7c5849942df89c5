/** A part of an episode took longer than it may. */
export class LimitPassed extends Error {
  override readonly name = 'LimitPassed';
}

/** One signal of several: aborts with the reason of the first. `dispose` takes its listeners off the others. */
export interface JoinedSignal extends Disposable {
  readonly signal: AbortSignal;
}

export function joinSignals(...sources: readonly AbortSignal[]): JoinedSignal {
  const controller = new AbortController();
  const listeners = sources.map((source) => {
    const abort = (): void => controller.abort(source.reason);
    if (source.aborted) abort();
    else source.addEventListener('abort', abort, { once: true });
    return () => source.removeEventListener('abort', abort);
  });
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      for (const remove of listeners) remove();
    },
  };
}

/**
 * Runs a piece of work under a limit. Ends at once when the limit passes or the parent aborts, whether or not the work
 * heeds its signal: a function that hangs holds nobody up.
 * @param what for the message, e.g. `set-up`
 * @throws LimitPassed, the parent's reason, or the work's own error: whichever came first
 */
export async function within<T>(
  limitMs: number,
  what: string,
  parent: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  parent.throwIfAborted();
  const limit = new AbortController();
  // Timers count whole milliseconds and may fire up to one early: when the limit is said to have passed, it has.
  const timer = setTimeout(
    () => limit.abort(new LimitPassed(`${what} took longer than ${round(limitMs)} s`)),
    Math.max(0, Math.ceil(limitMs)) + 1,
  );
  using joined = joinSignals(parent, limit.signal);
  const { signal } = joined;
  try {
    return await new Promise<T>((resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true });
      // What the work does after the limit has passed goes unheard: the limit is the first cause.
      work(signal).then(resolve, reject);
    });
  } finally {
    clearTimeout(timer);
  }
}

function round(ms: number): number {
  return Math.round(ms) / 1_000;
}
