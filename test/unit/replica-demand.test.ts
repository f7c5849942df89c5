import { describe, expect, it } from 'vitest';
import { Demand } from '../../runner/replica/demand.ts';

describe('demand for an image', () => {
  let nowMs = 1_000;
  const later = (seconds: number): void => {
    nowMs += seconds * 1_000;
  };

  it('is what waits, what waited a moment ago, and what was claimed in the last minute', () => {
    const demand = new Demand(() => nowMs);
    expect([demand.depth, demand.claims, demand.idleMs]).toEqual([0, 0, 0]);
    expect(demand.expect(0)).toBe(false);
    expect(demand.expect(40)).toBe(true);
    later(100);
    expect(demand.idleMs, 'while jobs wait it is asked for').toBe(0);
    demand.claimed();
    demand.expect(0);
    expect([demand.waiting, demand.depth, demand.claims]).toEqual([0, 40, 1]);
    later(14);
    expect(demand.depth).toBe(40);
    later(30);
    expect([demand.depth, demand.claims, demand.idleMs]).toEqual([0, 1, 44_000]);
    later(17);
    expect(demand.claims).toBe(0);
  });
});
