/** The items in order of their keys, beginning after the one whose turn was last: each gets its turn, whoever comes and goes. */
export function inRotation<T extends { key: string }>(items: readonly T[], lastKey: string): T[] {
  const sorted = items.toSorted((a, b) => (a.key < b.key ? -1 : 1));
  const start = sorted.findIndex((item) => item.key > lastKey);
  return start <= 0 ? sorted : [...sorted.slice(start), ...sorted.slice(0, start)];
}

/** How many of `wanted` jobs to ask the next of `batches` for, so that all get about as many; never zero. */
export function shareOf(wanted: number, batches: number): number {
  return Math.max(1, Math.floor(wanted / batches));
}
