import { setTimeout as sleep } from 'node:timers/promises';
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

/**
 * Waits until a guest's processors were quiet for so long. Where the host gives no account of them, waits as long.
 * @returns false when `maxMs` passed first @throws the signal's reason; QmpSilent, QmpError
 */
export async function quietFor(watched: Watched, ms: number, maxMs: number, signal: AbortSignal): Promise<boolean> {
  const end = performance.now() + maxMs;
  do {
    if (await staysQuiet(watched, ms, end - performance.now(), signal)) return true;
  } while (performance.now() < end);
  return false;
}

/**
 * Watches a guest's processors for so long.
 * @returns false as soon as they worked, or when that is not to be known by `maxMs` @throws as `quietFor`
 */
export async function staysQuiet(watched: Watched, ms: number, maxMs: number, signal: AbortSignal): Promise<boolean> {
  const start = performance.now();
  for (let piece = Math.min(ms, PIECE_MS); piece > 0; piece = Math.min(PIECE_MS, ms - (performance.now() - start))) {
    const from = { load: await watched.load(), atMs: performance.now() };
    for (let state: Stretch = 'unsure'; state === 'unsure'; ) {
      await sleep(Math.min(POLL_MS, piece), undefined, { signal });
      const load = await watched.load();
      const now = performance.now();
      state = judge(from.load, load, now - from.atMs, piece);
      if (state === 'busy' || (state === 'unsure' && now - start > maxMs)) return false;
    }
  }
  return true;
}

type Stretch = 'quiet' | 'busy' | 'unsure';

/**
 * What a stretch of time was like.
 * @param neededMs how long it has to be to count @returns `unsure` when it may still become either
 */
export function judge(from: Load | null, to: Load | null, elapsedMs: number, neededMs: number): Stretch {
  const workedMs = from && to ? to.busyMs - from.busyMs : 0;
  // No matter how short the stretch: a look at the clock is not work.
  if (workedMs > Math.max(QUIET_SHARE * neededMs, 4)) return 'busy';
  return elapsedMs >= neededMs && (to?.asleep ?? true) ? 'quiet' : 'unsure';
}
