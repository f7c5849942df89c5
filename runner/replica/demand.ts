/** How much an image is asked for. */
export class Demand {
  readonly #now: () => number;
  readonly #claimedAtMs: number[] = [];
  #waiting = 0;
  /** Of the quarter minute that runs and of the one before it. */
  #peaks: [number, number] = [0, 0];
  #turnedAtMs: number;
  #askedAtMs: number;

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#askedAtMs = now();
    this.#turnedAtMs = now();
  }

  /** Jobs in the queue that nobody has begun. */
  get waiting(): number {
    return this.#waiting;
  }

  /** The most that waited within the last quarter to half minute: a queue that empties and fills again is not to cost clones each time. */
  get depth(): number {
    this.#turn();
    return Math.max(this.#waiting, ...this.#peaks);
  }

  /** Claims of the last minute. */
  get claims(): number {
    const since = this.#now() - CLAIMS_MS;
    while ((this.#claimedAtMs[0] ?? Number.POSITIVE_INFINITY) < since) this.#claimedAtMs.shift();
    return this.#claimedAtMs.length;
  }

  /** Since a job last waited or was claimed, or it was opened. */
  get idleMs(): number {
    return this.#waiting > 0 ? 0 : this.#now() - this.#askedAtMs;
  }

  /** @returns whether that is news */
  expect(waiting: number): boolean {
    const news = waiting !== this.#waiting;
    if (waiting > 0 || this.#waiting > 0) this.#askedAtMs = this.#now();
    this.#turn();
    this.#waiting = waiting;
    this.#peaks[0] = Math.max(this.#peaks[0], waiting);
    return news;
  }

  claimed(): void {
    this.#askedAtMs = this.#now();
    this.#claimedAtMs.push(this.#askedAtMs);
  }

  #turn(): void {
    const turns = Math.floor((this.#now() - this.#turnedAtMs) / PEAK_MS);
    if (turns === 0) return;
    this.#turnedAtMs += turns * PEAK_MS;
    this.#peaks = [this.#waiting, turns === 1 ? this.#peaks[0] : this.#waiting];
  }
}

const CLAIMS_MS = 60_000;
const PEAK_MS = 15_000;
