import { setTimeout as sleep } from 'node:timers/promises';
import type { Load, Processors } from './processors.ts';

/** How often the processors are looked at: cheap, two small files of /proc each time. */
export const QUIET_POLL_MS = 25;
/**
 * Share of a processor that a quiet guest may use: timers and the clock take up to a tenth, with the waiting for a turn on a busy host;
 * one that works takes all of it.
 */
const QUIET_SHARE = 0.4;

/**
 * Watches a guest's processors until they were quiet for so long. Where the host gives no account of them, waits as long.
 * @returns false when `maxMs` passed first @throws the signal's reason; QmpSilent, QmpError
 */
export async function quietFor(
  processors: Pick<Processors, 'load'>,
  ms: number,
  maxMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  const end = performance.now() + maxMs;
  let from = { load: await processors.load(), atMs: performance.now() };
  for (;;) {
    await sleep(QUIET_POLL_MS, undefined, { signal });
    const load = await processors.load();
    const now = performance.now();
    const state = judge(from.load, load, now - from.atMs, ms);
    if (state === 'quiet') return true;
    if (now > end) return false;
    if (state === 'busy') from = { load, atMs: now };
  }
}

/**
 * What a stretch of time was like.
 * @param neededMs how long it has to be to count @returns `unsure` when it may still become either
 */
export function judge(
  from: Load | null,
  to: Load | null,
  elapsedMs: number,
  neededMs: number,
): 'quiet' | 'busy' | 'unsure' {
  const workedMs = from && to ? to.busyMs - from.busyMs : 0;
  if (workedMs > QUIET_SHARE * neededMs) return 'busy';
  return elapsedMs >= neededMs && (to?.asleep ?? true) ? 'quiet' : 'unsure';
}
