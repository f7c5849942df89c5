import type { Machine } from '../qemu/machine.ts';
import { Patience } from '../qemu/patience.ts';
import { type Region, same } from '../qemu/picture.ts';
import { quietFor, watchQuiet } from '../qemu/quiet.ts';
import type { ScreenPicture } from '../qemu/screen.ts';
import type { SettleLimits } from './contract.ts';

/** What is looked at to know that a desktop is done with what it was told. */
export type Settling = Pick<Machine, 'screen' | 'processors'>;

/** Long enough to tell a guest that works from one that sleeps. */
const LOOK_MS = 25;

/**
 * Waits until a desktop is done: its processors sleep and its picture stands still, volatile regions aside. A program that starts keeps
 * the processor at work without a gap, and shows nothing for seconds. What waits without work (a network, a timer longer than `minMs`)
 * cannot be seen from here. Where the host gives no account of a guest's processors, the picture alone tells.
 * @returns the picture it shows at rest; null when it was not by `maxMs` @throws the signal's reason; QmpSilent, QmpError
 */
export async function settle(
  { screen, processors }: Settling,
  volatile: readonly Region[],
  { minMs, maxMs }: SettleLimits,
  signal: AbortSignal,
): Promise<ScreenPicture | null> {
  const patience = await Patience.begin(processors, maxMs);
  for (;;) {
    // A picture costs more than a look at the processors: none is taken while the guest works anyway.
    if (!(await quietFor(processors, LOOK_MS, patience, signal))) return null;
    using before = await screen.picture(signal);
    const stretch = await watchQuiet(processors, Math.max(minMs, LOOK_MS), patience, signal);
    if (stretch === 'late') return null;
    if (stretch !== 'quiet') continue;
    const after = await screen.picture(signal);
    if (same(before, after, volatile)) return after;
    after[Symbol.dispose]();
  }
}
