import { EvaluatorError } from '../contract.ts';

/**
 * Taken from a guest by one evaluation, all its getters together; held in memory while it is scored, by the one process
 * that scores for all replicas of its host. OSWorld's largest files are a few MiB.
 */
const MOST_BYTES = 64 * 2 ** 20;

/** So many bytes, to be taken until there are none left. */
export class ByteBudget {
  readonly whole: number;
  #left: number;

  constructor(bytes = MOST_BYTES) {
    this.whole = bytes;
    this.#left = bytes;
  }

  get left(): number {
    return this.#left;
  }

  /** @throws EvaluatorError when there are not so many left */
  take(bytes: number): void {
    if (bytes > this.#left) throw new EvaluatorError(`${bytes} bytes are too many: ${this.remedy}`);
    this.#left -= bytes;
  }

  /** For messages. */
  get remedy(): string {
    return `an evaluation takes at most ${this.whole} bytes from its guest, and has ${this.#left} left; look at less, or at a part`;
  }
}
