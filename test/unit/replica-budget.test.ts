import { describe, expect, it } from 'vitest';
import { allowance, spokenFor } from '../../runner/replica/budget.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import type { ReplicaPhase } from '../../schemas/index.ts';

const cost = { frozenBytes: 1, hotBytes: 10, actingBytes: 100, actingCpus: 0.5, diskBytes: 7 };
const replica = (phase: ReplicaPhase): VirtualReplica => ({ phase }) as VirtualReplica;

describe('what a pool speaks for', () => {
  it.each<[ReplicaPhase, number]>([
    ['cloning', 1],
    ['restoring', 1],
    ['frozen', 1],
    ['gating', 10],
    ['hot', 10],
  ])('a replica that is %s counts %i', (phase, bytes) => {
    expect(allowance(phase, false, cost)).toBe(bytes);
    expect(allowance(phase, true, cost), 'set aside or leased, it may grow').toBe(100);
  });

  it('is the sum of its places to act and of what waits, each replica once', () => {
    const [out, frozen, hot] = [replica('leased'), replica('frozen'), replica('hot')];
    // Two places: one with its replica, one that looks for another after a failed claim.
    const parts = [
      { members: new Set([out, frozen, hot]), acting: 2, cost },
      { members: new Set([replica('gating')]), acting: 0, cost: { ...cost, hotBytes: 20 } },
    ];
    expect(spokenFor(parts, (it) => it === out, 333)).toEqual({
      ...{ acting: 2, milliCpus: 666, memoryBytes: 200 + 1 + 10 + 20, diskBytes: 14 },
    });
  });
});
