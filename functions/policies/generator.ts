/** A source of repeatable chance: the same seed gives the same draws on every machine. */
export interface Generator {
  /** @returns a whole number from `low` to `high`, both included */
  between(low: number, high: number): number;
  pick<T>(items: readonly [T, ...T[]]): T;
}

/** Mulberry32: 32 bits of state, a period of 2^32, plenty for choosing where to click. */
export function generator(seed: number): Generator {
  // Folds the upper half in, so that seeds that differ only above 2^32 differ here.
  let state = (seed ^ Math.floor(seed / 2 ** 32)) >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1));
  return { between, pick: (items) => items[between(0, items.length - 1)] ?? items[0] };
}
