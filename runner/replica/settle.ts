import { setTimeout as sleep } from 'node:timers/promises';
import type { Machine } from '../qemu/machine.ts';
import { type Region, same } from '../qemu/picture.ts';
import { QUIET_POLL_MS, quietFor } from '../qemu/quiet.ts';

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

/**
 * Waits until a desktop is done: its processors sleep and the picture stands still, volatile regions aside.
 * Where the host gives no account of its processors, the picture alone tells.
 * @returns false when it was not by `maxMs` @throws the signal's reason; QmpSilent, QmpError
 */
export async function settle(
  { screen, processors }: Settling,
  volatile: readonly Region[],
  { minMs, maxMs }: SettleLimits,
  signal: AbortSignal,
): Promise<boolean> {
  const start = performance.now();
  const leftMs = (): number => maxMs - (performance.now() - start);
  await sleep(Math.max(0, minMs - QUIET_MS - QUIET_POLL_MS), undefined, { signal });
  for (;;) {
    // A picture costs more than a look at the processors: none is taken while the guest works anyway.
    await quietFor(processors, QUIET_POLL_MS, leftMs(), signal);
    const before = await screen.picture(signal);
    const quiet = await quietFor(processors, QUIET_MS, leftMs(), signal);
    if (quiet && same(before, await screen.picture(signal), volatile)) return true;
    if (leftMs() < 0) return false;
  }
}
