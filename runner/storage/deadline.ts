/** A signal that aborts with `reason()` when its time is over, or with the parent's reason before. */
export interface Deadline {
  readonly signal: AbortSignal;
  readonly expired: boolean;
  /** Starts the time anew. @param ms from now */
  extend(ms: number): void;
  clear(): void;
}

/**
 * One listener on the parent, removed by `clear`: a signal that lives as long as the runner does not gather them.
 * @param ms from now
 */
export function deadline(parent: AbortSignal | undefined, ms: number, reason: () => Error): Deadline {
  const controller = new AbortController();
  let expired = false;
  const onParent = (): void => controller.abort(parent?.reason);
  const expire = (): void => {
    expired = true;
    controller.abort(reason());
  };
  let timer = setTimeout(expire, ms);
  if (parent?.aborted) onParent();
  else parent?.addEventListener('abort', onParent, { once: true });
  return {
    signal: controller.signal,
    get expired() {
      return expired;
    },
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
