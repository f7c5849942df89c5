import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { costOf, type HostRoom, MEMORY_FLOOR_BYTES, planCapacity } from '../../runner/replica/capacity.ts';
import { emptyProfile, estimatesOf, mergeSamples } from '../../runner/replica/profile.ts';

const [mib, gib] = [2 ** 20, 2 ** 30];
const floor = { diskFloorBytes: 2 * gib };
const room: HostRoom = {
  ...{ memoryBytes: 22 * gib, cpus: 2, diskBytes: 70 * gib },
  ...{ numaNodes: 1, openFiles: Number.POSITIVE_INFINITY },
};
const fresh = emptyProfile({ image: 'desk', image_digest: 'd', accelerator: 'tcg', memory_mib: 1_024 });
const cost = costOf(estimatesOf(fresh));

describe('capacity', () => {
  it('is bound by processors on a small machine under software emulation', () => {
    expect(planCapacity(room, cost, floor)).toMatchObject({ acting: 6, ready: 6, frozen: 6, bound: 'cpu', places: 6 });
  });

  it('is bound by memory where processors abound', () => {
    const plan = planCapacity({ ...room, cpus: 88 }, cost, floor);
    expect(plan.bound).toBe('memory');
    expect(plan.acting * (cost.actingBytes + cost.hotBytes)).toBeLessThanOrEqual(22 * gib - MEMORY_FLOOR_BYTES);
  });

  it('is bound by a disk that is nearly full', () => {
    expect(planCapacity({ ...room, diskBytes: 2.6 * gib }, cost, floor)).toMatchObject({ acting: 2, bound: 'disk' });
  });

  it('is told of each kind, with what bounds it', () => {
    const { kinds } = planCapacity({ ...room, openFiles: 1_024 }, cost, floor);
    expect(kinds.frozen).toEqual({ count: (1_024 - 512) / 8, bound: 'files' });
    expect(kinds.acting).toEqual({ count: 6, bound: 'cpu' });
    const many = planCapacity(room, cost, floor).kinds;
    expect(many.frozen).toEqual({ count: Math.floor((21 * gib) / (24 * mib)), bound: 'memory' });
    expect(many.hot).toEqual({ count: Math.floor((21 * gib) / (96 * mib)), bound: 'memory' });
  });

  it('is what a setting says', () => {
    expect(planCapacity({ ...room, groups: 2 }, cost, { ...floor, perGroup: 2 })).toMatchObject({
      ...{ acting: 4, bound: 'group', places: 4 },
    });
    expect(planCapacity(room, cost, { ...floor, acting: 1 })).toMatchObject({ acting: 1, ready: 1, bound: 'setting' });
    expect(planCapacity(room, cost, { ...floor, acting: 9, ready: 2 })).toMatchObject({
      ...{ acting: 9, ready: 2, frozen: 0, bound: 'setting', places: 6 },
    });
    const set = planCapacity(room, cost, { ...floor, ready: 7, frozen: 1_024 });
    expect(set).toMatchObject({ acting: 6, ready: 7, frozen: 1_024, bound: 'cpu' });
    expect(set.kinds.frozen).toEqual({ count: 1_024, bound: 'setting' });
  });

  it('puts no replica across two memory nodes', () => {
    // 1.5 places a node: one each, not three.
    const { kinds } = planCapacity({ ...room, cpus: 1, numaNodes: 2 }, { ...cost, actingCpus: 1 / 3 }, floor);
    expect(kinds.acting).toEqual({ count: 2, bound: 'cpu' });
  });

  it('follows what was measured', () => {
    const acting_bytes = Array.from({ length: 20 }, () => 200 * mib);
    const acting_cpu = Array.from({ length: 20 }, () => 0.1);
    const measured = costOf(estimatesOf(mergeSamples(fresh, { acting_bytes, acting_cpu })));
    expect(planCapacity(room, measured, floor)).toMatchObject({ acting: 20, bound: 'cpu' });
    // Half as much again is kept for each: 300 MiB, and 96 for the hot one beside it.
    expect(planCapacity({ ...room, cpus: 200 }, measured, floor)).toMatchObject({ acting: 54, bound: 'memory' });
  });

  it('never shrinks when a host grows, and serves at least one', () => {
    const size = fc.record({
      memoryBytes: fc.integer({ min: 0, max: 400 }).map((n) => n * gib),
      cpus: fc.integer({ min: 1, max: 200 }),
      diskBytes: fc.integer({ min: 0, max: 400 }).map((n) => n * gib),
      numaNodes: fc.constantFrom(1, 2),
      openFiles: fc.constantFrom(1_024, Number.POSITIVE_INFINITY),
    });
    fc.assert(
      fc.property(size, (host) => {
        const { acting } = planCapacity(host, cost, floor);
        const more = {
          ...host,
          cpus: host.cpus + 1,
          memoryBytes: host.memoryBytes + gib,
          diskBytes: host.diskBytes + gib,
        };
        return acting >= 1 && planCapacity(more, cost, floor).acting >= acting;
      }),
    );
  });
});
