import { setTimeout as sleep } from 'node:timers/promises';
import type { Machine } from '../qemu/machine.ts';
import { type Region, same } from '../qemu/picture.ts';
import type { Load } from '../qemu/processors.ts';

/** What is looked at to know that a desktop is done with what it was told. */
export type Settling = Pick<Machine, 'screen' | 'processors'>;

export interface SettleLimits {
  /** Not before this, counted from the call. */
  minMs: number;
  /** Not long after this, whatever the desktop does. */
  maxMs: number;
}

/**
 * For so long nothing may happen. A program that starts keeps the guest's processor at work without a gap, and shows nothing for
 * seconds; what goes on without work (a delayed menu, a network) cannot be seen from here.
 */
const QUIET_MS = 100;
const POLL_MS = 25;
/**
 * Share of a processor that a quiet guest may use: timers and the clock take up to a tenth, with the waiting for a turn on a busy host;
 * one that works takes all of it.
 */
const QUIET_SHARE = 0.4;

/**
 * Waits until a desktop is done: its processors sleep and the picture stands still, volatile regions aside.
 * @returns false when it was not by `maxMs` @throws the signal's reason; QmpSilent, QmpError
 */
export async function settle(
  { screen, processors }: Settling,
  volatile: readonly Region[],
  { minMs, maxMs }: SettleLimits,
  signal: AbortSignal,
): Promise<boolean> {
  const start = performance.now();
  const late = (): boolean => performance.now() - start > maxMs;
  await sleep(Math.max(0, minMs - QUIET_MS - POLL_MS), undefined, { signal });
  for (;;) {
    // A picture costs more than a look at the processors: none is taken while the guest works anyway.
    await quietFor(POLL_MS);
    const before = await screen.picture(signal);
    const quiet = await quietFor(QUIET_MS);
    if (quiet && same(before, await screen.picture(signal), volatile)) return true;
    if (late()) return false;
  }

  /** Watches the processors until they were quiet for so long, or the time is over. @returns which of the two */
  async function quietFor(ms: number): Promise<boolean> {
    let from = { load: await processors.load(), atMs: performance.now() };
    for (;;) {
      await sleep(POLL_MS, undefined, { signal });
      const load = await processors.load();
      const elapsedMs = performance.now() - from.atMs;
      const state = judge(from.load, load, elapsedMs, ms);
      if (state === 'quiet') return true;
      if (late()) return false;
      if (state === 'busy') from = { load, atMs: performance.now() };
    }
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
  // Without the host's accounts the picture alone tells.
  const workedMs = from && to ? to.busyMs - from.busyMs : 0;
  if (workedMs > QUIET_SHARE * neededMs) return 'busy';
  return elapsedMs >= neededMs && (to?.asleep ?? true) ? 'quiet' : 'unsure';
}
