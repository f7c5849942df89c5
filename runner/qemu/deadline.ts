/**
 * Waits for work no longer than `ms`. The work itself goes on; whoever started it must be able to end it.
 * @throws `late()` when the time is over, the signal's reason when it is aborted
 */
export function within<T>(work: Promise<T>, ms: number, late: () => Error, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      work.catch(() => undefined);
      reject(signal.reason);
      return;
    }
    const timer = setTimeout(() => finish(() => reject(late())), ms);
    const onAbort = (): void => finish(() => reject(signal?.reason));
    const finish = (settle: () => void): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      settle();
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    work.then(
      (value) => finish(() => resolve(value)),
      (error) => finish(() => reject(error)),
    );
  });
}
