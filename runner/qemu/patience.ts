import type { Load, Processors } from './processors.ts';

/** On a host with many times more to do than it can, waiting must end all the same. */
const MOST = 6;

/** The longest that patience of so many milliseconds may last on any clock. */
export const longestMs = (patienceMs: number): number => MOST * patienceMs;

/**
 * Patience with a guest, in the guest's own time: what its processors spend waiting for their turn on a busy host does not count, so
 * that an episode goes the same way there, only later.
 */
export class Patience {
  readonly #ms: number;
  readonly #start: Load | null;
  readonly #startMs = performance.now();

  private constructor(ms: number, start: Load | null) {
    this.#ms = ms;
    this.#start = start;
  }

  /** @throws QmpSilent, QmpError */
  static async begin(processors: Pick<Processors, 'load'>, ms: number): Promise<Patience> {
    return new Patience(ms, await processors.load());
  }

  /** @param now the guest's processors at this moment */
  isOver(now: Load | null): boolean {
    const elapsedMs = performance.now() - this.#startMs;
    const waitedMs = this.#start && now ? now.waitedMs - this.#start.waitedMs : 0;
    return elapsedMs - waitedMs > this.#ms || elapsedMs > longestMs(this.#ms);
  }
}
