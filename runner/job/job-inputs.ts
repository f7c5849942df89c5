import { readInput } from '../storage/inputs.ts';
import type { ObjectStore } from '../storage/s3.ts';
import { LimitPassed } from './limit.ts';
import { PartFailed } from './part-failed.ts';

/**
 * What an attempt reads of its batch's inputs. When S3 is away the read goes on for a while, and the set-up's limit may
 * pass before: that is S3's failure, not the job's, although the limit is the first cause.
 */
export class JobInputs {
  readonly #store: ObjectStore;
  readonly #batch: string;
  /** S3's last word on a read that has not ended. */
  #trouble: Error | null = null;

  constructor(store: ObjectStore, batch: string) {
    this.#store = store;
    this.#batch = batch;
  }

  async read(key: string, maxBytes: number, signal: AbortSignal): Promise<Buffer> {
    const onTrouble = (error: Error): void => {
      this.#trouble = error;
    };
    try {
      return await readInput(this.#store, this.#batch, key, maxBytes, { signal, onTrouble });
    } finally {
      if (!signal.aborted) this.#trouble = null;
    }
  }

  /** What was behind an attempt's error: S3, where a limit passed while S3 was waited for; else the error itself. */
  awaited(error: unknown): unknown {
    const limit = error instanceof PartFailed && error.cause instanceof LimitPassed;
    if (!limit || this.#trouble === null) return error;
    return new PartFailed(error.part, `${error.message} (S3 was waited for: ${this.#trouble.message})`, this.#trouble);
  }
}
