import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type HostRoom, MEMORY_FLOOR_BYTES, planCapacity, replicaCost } from '../../runner/replica/capacity.ts';

const gib = 2 ** 30;
const floor = { diskFloorBytes: 2 * gib };
const room: HostRoom = { memoryBytes: 22 * gib, cpus: 2, diskBytes: 70 * gib, accelerator: 'tcg' };
const cost = replicaCost('tcg', 1024);

describe('capacity', () => {
  it('is bound by processors on a small machine under software emulation', () => {
    expect(planCapacity(room, cost, floor)).toEqual({ acting: 6, ready: 6, bound: 'cpu' });
  });

  it('is bound by memory where processors abound', () => {
    const plan = planCapacity({ ...room, cpus: 88 }, cost, floor);
    expect(plan.bound).toBe('memory');
    expect(plan.acting * (cost.actingBytes + cost.hotBytes)).toBeLessThanOrEqual(22 * gib - MEMORY_FLOOR_BYTES);
  });

  it('is bound by a disk that is nearly full', () => {
    expect(planCapacity({ ...room, diskBytes: 2.6 * gib }, cost, floor)).toEqual({
      acting: 2,
      ready: 2,
      bound: 'disk',
    });
  });

  it('is what a setting says', () => {
    expect(planCapacity(room, cost, { ...floor, acting: 1 })).toEqual({ acting: 1, ready: 1, bound: 'setting' });
    expect(planCapacity(room, cost, { ...floor, acting: 9, ready: 2 })).toEqual({
      acting: 9,
      ready: 2,
      bound: 'setting',
    });
    expect(planCapacity(room, cost, { ...floor, ready: 7 })).toEqual({ acting: 6, ready: 7, bound: 'cpu' });
  });

  it('never shrinks when a host grows, and serves at least one', () => {
    const size = fc.record({
      memoryBytes: fc.integer({ min: 0, max: 400 }).map((n) => n * gib),
      cpus: fc.integer({ min: 1, max: 200 }),
      diskBytes: fc.integer({ min: 0, max: 400 }).map((n) => n * gib),
      accelerator: fc.constantFrom('tcg' as const, 'kvm' as const),
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
