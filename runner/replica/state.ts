import type { ReplicaPhase } from '../../schemas/index.ts';

/**
 * The life of one replica.
 *
 *   cloning --cloned--> restoring --restored--> frozen --thaw--> gating --passed--> hot --lease--> leased
 *
 * cloning    its ownership is on record, its disk shares blocks with the template's, its QEMU is starting
 * restoring  QEMU loads the template's device state
 * frozen     restored and paused; has never run
 * gating     runs; must prove that it is alive, itself and on time
 * hot        proved it; paused again, or running because it is about to be leased
 * leased     belongs to one attempt
 *
 * From each of these: `fail` (with its cause) and `expired` (the phase's time is over) lead to `failed`, `discard` to `discarded`.
 * `failed` is left by `discard`, and by `expired` should nobody discard it; `discarded` never. What else arrives for a failed or
 * discarded replica changes nothing.
 */
export interface ReplicaState {
  readonly phase: ReplicaPhase;
  /** Why it failed: the first cause, kept when it is discarded. */
  readonly cause: string | null;
}

export type ReplicaEvent =
  | { type: 'cloned' | 'restored' | 'thaw' | 'passed' | 'lease' | 'discard' | 'expired' }
  | { type: 'fail'; cause: string };

/** An event that cannot happen in this phase: a fault of the program. */
export class TransitionError extends Error {
  override readonly name = 'TransitionError';
}

const hour = 3_600_000;

/**
 * How long a phase may last, in milliseconds; each ends in `failed` after it, and `failed` itself in `discarded`.
 * A healthy one is cloned and restored in 0.2 s and gated in half a second: these are for hosts with no processor to spare.
 * An old paused guest wakes to a backlog of timers, so it is replaced after some hours. No job may last as long as a lease.
 */
export const PHASE_DEADLINE_MS: Record<Exclude<ReplicaPhase, 'discarded'>, number> = {
  cloning: 30_000,
  restoring: 30_000,
  frozen: 24 * hour,
  gating: 45_000,
  hot: 12 * hour,
  leased: 8 * hour,
  // For a last look at it, which takes seconds.
  failed: hour / 4,
};

export const FIRST_STATE: ReplicaState = { phase: 'cloning', cause: null };

/** The steps of the diagram. */
export const NEXT: Partial<Record<ReplicaPhase, Partial<Record<ReplicaEvent['type'], ReplicaPhase>>>> = {
  cloning: { cloned: 'restoring' },
  restoring: { restored: 'frozen' },
  frozen: { thaw: 'gating' },
  gating: { passed: 'hot' },
  hot: { lease: 'leased' },
  leased: {},
};

/** Pure. @throws TransitionError */
export function transition(state: ReplicaState, event: ReplicaEvent): ReplicaState {
  const { phase } = state;
  if (phase === 'discarded') return state;
  if (event.type === 'discard') return { ...state, phase: 'discarded' };
  if (phase === 'failed') return event.type === 'expired' ? { ...state, phase: 'discarded' } : state;
  if (event.type === 'fail') return { phase: 'failed', cause: event.cause };
  if (event.type === 'expired') {
    return { phase: 'failed', cause: `${phase} took longer than ${PHASE_DEADLINE_MS[phase]} ms` };
  }
  const next = NEXT[phase]?.[event.type];
  if (!next) throw new TransitionError(`a replica cannot be ${event.type} while it is ${phase}`);
  return { ...state, phase: next };
}
