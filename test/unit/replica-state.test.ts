import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FIRST_STATE,
  NEXT,
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

  it('has the steps that the diagram at the head of its file shows, and no others', async () => {
    const source = await readFile('runner/replica/state.ts', 'utf8');
    const line = source.split('\n').find((text) => text.includes('-->')) ?? '';
    const [first, ...rest] = line.replace(/^ \*\s*/, '').split(/\s+/);
    const drawn: Record<string, Record<string, string>> = {};
    for (let from = first ?? '', at = 0; at < rest.length; at += 2) {
      const to = rest[at + 1] ?? '';
      drawn[from] = { [(rest[at] ?? '').replaceAll(/^--|-->$/g, '')]: to };
      from = to;
    }
    expect({ ...drawn, leased: {} }).toEqual(NEXT);
    expect(Object.keys(drawn)).toHaveLength(5);
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

  it('has a deadline in every phase but the last, and leaves it then, whatever came before', () => {
    fc.assert(
      fc.property(fc.array(anyEvent), (events) => {
        const state = run(events).at(-1) ?? FIRST_STATE;
        if (state.phase === 'discarded') return true;
        return PHASE_DEADLINE_MS[state.phase] > 0 && transition(state, { type: 'expired' }).phase !== state.phase;
      }),
    );
  });

  it('says which phase took too long; one that failed is then discarded, its cause kept', () => {
    expect(transition({ phase: 'failed', cause: 'first' }, { type: 'expired' })).toEqual({
      phase: 'discarded',
      cause: 'first',
    });
    for (const [phase, ms] of Object.entries(PHASE_DEADLINE_MS)) {
      if (phase === 'failed') continue;
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
