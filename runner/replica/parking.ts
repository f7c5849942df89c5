import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { ScreenSize } from '../../functions/guest.ts';
import type { HelperClient } from '../qemu/helper.ts';
import type { InputDevices } from '../qemu/input.ts';

/** Where the pointer rests in a template: on the bare desktop, away from panels and icons, which lie along the edges. */
export function parkingSpot(screen: ScreenSize): { x: number; y: number } {
  return { x: Math.round(screen.width * 0.7), y: Math.round(screen.height * 0.6) };
}

/** Where it is moved to and back from, to see that the picture follows. */
export function nearbySpot(screen: ScreenSize): { x: number; y: number } {
  const { x, y } = parkingSpot(screen);
  return { x: x + 40, y: y + 30 };
}

/** What moves a machine's pointer, and what tells where it is. */
export interface Pointing {
  size: ScreenSize;
  input: Pick<InputDevices, 'perform'>;
  helper: Pick<HelperClient, 'call'>;
}

const Pointer = z.object({ x: z.number(), y: z.number() });
const CALL_DEADLINE_MS = 60_000;
/** A display server that has just started opens its devices one after the other, and what they tell before that is lost. */
const OPENING_MS = 10_000;
const PAUSE_MS = 250;

/**
 * Brings the pointer to its resting place.
 * @throws when it cannot be brought there: the guest takes positions for movements, and each click would miss what it was aimed at
 */
export async function park({ input, helper, size }: Pointing, signal: AbortSignal): Promise<void> {
  const spot = parkingSpot(size);
  const end = performance.now() + OPENING_MS;
  for (;;) {
    // The guest's kernel drops a position that is the same as the last one.
    await input.perform({ type: 'move', ...nearbySpot(size) }, signal);
    await input.perform({ type: 'move', ...spot }, signal);
    const found = await helper.call('pointer', {}, Pointer, { deadlineMs: CALL_DEADLINE_MS, signal });
    if (found.x === spot.x && found.y === spot.y) return;
    if (performance.now() > end) {
      throw new Error(
        `the pointer was sent to (${spot.x}, ${spot.y}) and is at (${found.x}, ${found.y}): the desktop does not take the tablet's positions as they are, and no click would hit its target`,
      );
    }
    await sleep(PAUSE_MS, undefined, { signal });
  }
}
