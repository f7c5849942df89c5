/** Jobs a minute over the last minute, from counts taken now and then. */
export class Rate {
  readonly #points: { atMs: number; count: number }[] = [];

  /** @param count all so far */
  add(count: number, atMs = performance.now()): void {
    this.#points.push({ atMs, count });
    while (this.#points.length > 2 && atMs - (this.#points[0]?.atMs ?? 0) > WINDOW_MS) this.#points.shift();
  }

  /** Null until two counts are a second apart. */
  perMinute(): number | null {
    const first = this.#points[0];
    const last = this.#points.at(-1);
    if (!first || !last || last.atMs - first.atMs < 1_000) return null;
    return ((last.count - first.count) / (last.atMs - first.atMs)) * 60_000;
  }

  text(): string {
    const rate = this.perMinute();
    return rate === null ? '' : `${rate.toFixed(rate < 10 ? 1 : 0)}/min`;
  }
}

const WINDOW_MS = 60_000;
