import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FIRST_STATE,
  PHASE_DEADLINE_MS,
  type ReplicaEvent,
  type ReplicaState,
  TransitionError,
  transition,
} from '../../runner/replica/state.ts';
import { ReplicaPhase } from '../../schemas/index.ts';

const ORDER: readonly string[] = ['cloning', 'restoring', 'frozen', 'gating', 'hot', 'leased', 'failed', 'discarded'];
const STEPS = ['cloned', 'restored', 'thaw', 'passed', 'lease'] as const;

const anyEvent: fc.Arbitrary<ReplicaEvent> = fc.oneof(
  fc.constantFrom(...STEPS, 'discard' as const, 'expired' as const).map((type) => ({ type })),
  fc.string({ minLength: 1 }).map((cause) => ({ type: 'fail' as const, cause })),
);

/** Applies events; one that cannot happen in its phase is refused and changes nothing. */
function run(events: readonly ReplicaEvent[]): ReplicaState[] {
  const states = [FIRST_STATE];
  for (const event of events) {
    const state = states.at(-1) ?? FIRST_STATE;
    try {
      states.push(transition(state, event));
    } catch (error) {
      if (!(error instanceof TransitionError)) throw error;
    }
  }
  return states;
}

describe('replica state', () => {
  it('goes from nothing to leased and out by the steps of its diagram', () => {
    const phases = run([...STEPS.map((type) => ({ type })), { type: 'discard' }]).map(({ phase }) => phase);
    expect(phases).toEqual(['cloning', 'restoring', 'frozen', 'gating', 'hot', 'leased', 'discarded']);
  });

  it('knows every phase of the wire contract', () => {
    expect([...ORDER].sort()).toEqual([...ReplicaPhase.options].sort());
  });

  it('never goes back, whatever happens', () => {
    fc.assert(
      fc.property(fc.array(anyEvent), (events) => {
        const ranks = run(events).map(({ phase }) => ORDER.indexOf(phase));
        return ranks.every((rank, index) => index === 0 || rank >= (ranks[index - 1] ?? 0));
      }),
    );
  });

  it('keeps the first cause', () => {
    fc.assert(
      fc.property(fc.array(anyEvent), (events) => {
        const causes = run(events)
          .map(({ cause }) => cause)
          .filter((cause) => cause !== null);
        return new Set(causes).size <= 1;
      }),
    );
  });

  it('has a cause exactly when it failed', () => {
    fc.assert(
      fc.property(fc.array(anyEvent), (events) => {
        const states = run(events);
        const failed = states.some(({ phase }) => phase === 'failed');
        return (states.at(-1)?.cause !== null) === failed;
      }),
    );
  });

  it('can always be discarded, and stays so', () => {
    fc.assert(
      fc.property(fc.array(anyEvent), fc.array(anyEvent), (before, after) => {
        const states = run([...before, { type: 'discard' }, ...after]);
        return states.at(-1)?.phase === 'discarded';
      }),
    );
  });

  it('leaves every phase when its time is over', () => {
    for (const [phase, ms] of Object.entries(PHASE_DEADLINE_MS)) {
      const state = { phase: ReplicaPhase.parse(phase), cause: null };
      expect(transition(state, { type: 'expired' })).toEqual({
        phase: 'failed',
        cause: `${phase} took longer than ${ms} ms`,
      });
    }
  });

  it('refuses a step out of turn', () => {
    expect(() => transition(FIRST_STATE, { type: 'lease' })).toThrow('a replica cannot be lease while it is cloning');
  });
});
