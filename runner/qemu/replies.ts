interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/** Requests on their way, by id. Each has a deadline; an answer that comes after it is left out. */
export class Replies {
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;

  get size(): number {
    return this.#waiting.size;
  }

  /**
   * @param send called with the request's id, once
   * @throws `late()` after `deadlineMs`; the signal's reason on abort: the request may have been served all the same
   */
  request(send: (id: number) => void, deadlineMs: number, late: () => Error, signal?: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(signal.reason);
        return;
      }
      this.#lastId += 1;
      const id = this.#lastId;
      const timer = setTimeout(() => this.fail(id, late()), deadlineMs);
      const onAbort = (): boolean => this.fail(id, signal?.reason);
      signal?.addEventListener('abort', onAbort, { once: true });
      const release = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
      };
      this.#waiting.set(id, {
        resolve: (value) => {
          release();
          resolve(value);
        },
        reject: (error) => {
          release();
          reject(error);
        },
      });
      send(id);
    });
  }

  /** @returns whether somebody waited for it */
  answer(id: number, value: unknown): boolean {
    const waiting = this.#take(id);
    waiting?.resolve(value);
    return waiting !== undefined;
  }

  /** @returns whether somebody waited for it */
  fail(id: number, error: unknown): boolean {
    const waiting = this.#take(id);
    waiting?.reject(error);
    return waiting !== undefined;
  }

  failAll(error: Error): void {
    for (const id of [...this.#waiting.keys()]) this.fail(id, error);
  }

  #take(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    return waiting;
  }
}
