import { gib } from './capacity.ts';
import type { Pressure } from './host-now.ts';

/**
 * What a pool does when its host is short.
 *
 *   calm --short--> shrinking --still short, nothing left to give--> holding --calm for a while--> shrinking --> calm
 *
 * Shrinking, the part of its warm replicas that it keeps (`keep`) is halved at each look. When only the last ones are left and the host is
 * still short, no more jobs are pulled. Disk is not won by giving up replicas, whose blocks are shared: below its floor pulling stops at
 * once. What is leased is left alone in any case. Recovery takes longer than decay, and asks for more than the end of the
 * shortage, so that it does not begin anew with the first replica that is made: first pulling, then a quarter of the pool at a time.
 */
export interface PressureState {
  /** Part of the warm pool that is kept, 0 to 1; at 0 one replica of each image stays. */
  keep: number;
  /** Why no jobs are pulled, or null. */
  holding: string | null;
  /** Why it shrinks, or null. */
  reason: string | null;
  /** Looks in a row without a sign of shortage. */
  calm: number;
}

export const CALM: PressureState = { keep: 1, holding: null, reason: null, calm: 0 };

/** What is looked at. */
export interface Shortage {
  memoryBytes: number;
  memoryFloorBytes: number;
  diskBytes: number;
  diskFloorBytes: number;
  /** Replicas that act. */
  acting: number;
  /** Null where the kernel gives no account of it: then it is not used. */
  pressure: Pressure | null;
}

/** Percent of ten seconds. A host with memory to spare has 0; one in which everybody waits for memory makes no way at all. */
const SHORT = { some: 10, full: 4 } as const;
const AGAIN = { some: 4, full: 1 } as const;
/** Above the floor, in parts of it, from which there is enough. */
const MARGIN = 1.25;
/** Looks, some seconds apart: the kernel's averages are of ten seconds. */
const CALM_LOOKS = 5;
/** Less is nothing: what is left is the last one of each image. */
const LEAST_KEEP = 0.1;
const GROWTH = 0.25;

/** Pure: the state after one more look. */
export function underPressure(state: PressureState, look: Shortage): PressureState {
  const disk =
    look.diskBytes < look.diskFloorBytes
      ? `disk: ${gib(look.diskBytes)} GiB free, floor is ${gib(look.diskFloorBytes)} GiB`
      : null;
  const reason = shortOf(look);
  if (disk !== null || reason !== null) {
    const spent = reason !== null && state.keep === 0;
    const keep = reason === null ? state.keep : state.keep / 2 < LEAST_KEEP ? 0 : state.keep / 2;
    return { keep, holding: disk ?? (spent ? reason : state.holding), reason, calm: 0 };
  }
  const diskAgain = look.diskBytes >= look.diskFloorBytes * MARGIN || !state.holding?.startsWith('disk');
  if (!isEnough(look, state.keep) || !diskAgain) return { ...state, calm: 0 };
  const calm = state.calm + 1;
  if (state.holding === null && state.keep === 1) return { ...CALM, calm: Math.min(calm, CALM_LOOKS) };
  if (calm < CALM_LOOKS) return { ...state, calm };
  // One step, then it is looked at again for as long.
  if (state.holding !== null) return { ...state, holding: null, calm: 0 };
  const keep = Math.min(1, state.keep + GROWTH);
  return { keep, holding: null, reason: keep === 1 ? null : state.reason, calm: 0 };
}

function shortOf({ memoryBytes, memoryFloorBytes, pressure }: Shortage): string | null {
  if (memoryBytes < memoryFloorBytes) {
    return `memory: ${gib(memoryBytes)} GiB free, floor is ${gib(memoryFloorBytes)} GiB`;
  }
  if (pressure && pressure.full >= SHORT.full) return `memory: all tasks stalled ${pressure.full} % of the last 10 s`;
  if (pressure && pressure.some >= SHORT.some) return `memory: tasks stalled ${pressure.some} % of the last 10 s`;
  return null;
}

/** A host that gave up all and on which nothing acts has no more than this to hope for: the floor is enough then. */
function isEnough({ memoryBytes, memoryFloorBytes, pressure, acting }: Shortage, keep: number): boolean {
  if (keep === 0 && acting === 0) return true;
  if (memoryBytes < memoryFloorBytes * MARGIN) return false;
  return pressure === null || (pressure.some < AGAIN.some && pressure.full < AGAIN.full);
}
