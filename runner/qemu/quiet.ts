import { setTimeout as sleep } from 'node:timers/promises';
import type { Patience } from './patience.ts';
import type { Load, Processors } from './processors.ts';

/** How often the processors are looked at: two small files of /proc each time. */
const POLL_MS = 25;
/** A longer stretch is watched in pieces, so that a short burst of work is not lost in it. */
const PIECE_MS = 100;
/**
 * Share of a processor that a quiet guest may use: timers and the clock take up to a tenth, with the waiting for a turn on a busy host;
 * one that works takes all of it.
 */
const QUIET_SHARE = 0.4;

type Watched = Pick<Processors, 'load'>;
/** `late`: the patience is over, and which of the other two it is not known. */
export type Stretch = 'quiet' | 'busy' | 'late';

/**
 * Waits until a guest's processors were quiet for so long. Where the host gives no account of them, waits as long.
 * @returns whether they were before the patience was over @throws the signal's reason; QmpSilent, QmpError
 */
export async function quietFor(
  watched: Watched,
  ms: number,
  patience: Patience,
  signal: AbortSignal,
): Promise<boolean> {
  for (;;) {
    const stretch = await watchQuiet(watched, ms, patience, signal);
    if (stretch !== 'busy') return stretch === 'quiet';
  }
}

/** Watches a guest's processors for so long, or until they work. @throws as `quietFor` */
export async function watchQuiet(
  watched: Watched,
  ms: number,
  patience: Patience,
  signal: AbortSignal,
): Promise<Stretch> {
  const start = performance.now();
  let from = { load: await watched.load(), atMs: start };
  for (;;) {
    await sleep(Math.min(POLL_MS, ms), undefined, { signal });
    const load = await watched.load();
    const atMs = performance.now();
    if (patience.isOver(load)) return 'late';
    const pieceMs = Math.min(PIECE_MS, ms - (from.atMs - start));
    const state = judge(from.load, load, atMs - from.atMs, pieceMs);
    if (state === 'busy') return 'busy';
    if (state === 'unsure') continue;
    if (atMs - start >= ms) return 'quiet';
    from = { load, atMs };
  }
}

/**
 * What a piece of time was like.
 * @param neededMs how long it has to be to count @returns `unsure` when it may still become either
 */
export function judge(
  from: Load | null,
  to: Load | null,
  elapsedMs: number,
  neededMs: number,
): 'quiet' | 'busy' | 'unsure' {
  const workedMs = from && to ? to.ranMs + to.waitedMs - from.ranMs - from.waitedMs : 0;
  // No matter how short the piece: a look at the clock is not work.
  if (workedMs > Math.max(QUIET_SHARE * neededMs, 4)) return 'busy';
  // A wait is booked when it is over: of one that is awake it is not known what it has done.
  return elapsedMs >= neededMs && (to?.asleep ?? true) ? 'quiet' : 'unsure';
}
