import type { Machine } from '../qemu/machine.ts';
import { type Region, same } from '../qemu/picture.ts';
import { quietFor, staysQuiet } from '../qemu/quiet.ts';

/** What is looked at to know that a desktop is done with what it was told. */
export type Settling = Pick<Machine, 'screen' | 'processors'>;

export interface SettleLimits {
  /** For so long the desktop must have been at rest. */
  minMs: number;
  /** Not long after this, whatever the desktop does; counted from the call. */
  maxMs: number;
}

/** Long enough to tell a guest that works from one that sleeps. */
const LOOK_MS = 25;

/**
 * Waits until a desktop is done: its processors sleep and its picture stands still, volatile regions aside. A program that starts keeps
 * the processor at work without a gap, and shows nothing for seconds. What waits without work (a network, a timer longer than `minMs`)
 * cannot be seen from here. Where the host gives no account of a guest's processors, the picture alone tells.
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
  for (;;) {
    // A picture costs more than a look at the processors: none is taken while the guest works anyway.
    await quietFor(processors, LOOK_MS, leftMs(), signal);
    const before = await screen.picture(signal);
    const quiet = await staysQuiet(processors, Math.max(minMs, LOOK_MS), leftMs(), signal);
    if (quiet && same(before, await screen.picture(signal), volatile)) return true;
    if (leftMs() < 0) return false;
  }
}
