/** A signal that aborts with `reason()` when its time is over, or with the parent's reason before. */
export interface Deadline {
  readonly signal: AbortSignal;
  /** Why it ended by itself: its time, or what `fail` was given; undefined when it did not, or the parent's abort was first. */
  readonly failure: Error | undefined;
  /** Starts the time anew. @param ms from now */
  extend(ms: number): void;
  fail(error: Error): void;
  clear(): void;
}

/**
 * One listener on the parent, removed by `clear`: a signal that lives as long as the runner does not gather them.
 * @param ms from now
 */
export function deadline(parent: AbortSignal | undefined, ms: number, reason: () => Error): Deadline {
  const controller = new AbortController();
  let failure: Error | undefined;
  const onParent = (): void => controller.abort(parent?.reason);
  const fail = (error: Error): void => {
    if (controller.signal.aborted) return;
    failure = error;
    controller.abort(error);
  };
  const expire = (): void => fail(reason());
  let timer = setTimeout(expire, ms);
  if (parent?.aborted) onParent();
  else parent?.addEventListener('abort', onParent, { once: true });
  return {
    signal: controller.signal,
    get failure() {
      return failure;
    },
    fail,
    extend: (more) => {
      clearTimeout(timer);
      timer = setTimeout(expire, more);
    },
    clear: () => {
      clearTimeout(timer);
      parent?.removeEventListener('abort', onParent);
    },
  };
}
