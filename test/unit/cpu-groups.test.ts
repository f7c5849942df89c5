import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CpuGroups, emptiest, planGroups } from '../../runner/replica/cpu-groups.ts';
import { cpuTopology, parseCpuList } from '../../runner/system/cpu-topology.ts';

describe('groups of processors', () => {
  it('are whole nodes where no size is given', () => {
    expect(
      planGroups(
        {
          nodes: [
            [0, 1, 2],
            [3, 4],
          ],
        },
        null,
      ).map(({ cpus }) => cpus),
    ).toEqual([
      [0, 1, 2],
      [3, 4],
    ]);
  });

  it('never cross a node; what is left of it goes to its last group', () => {
    expect(
      planGroups(
        {
          nodes: [
            [0, 1, 2, 3, 4],
            [5, 6],
          ],
        },
        2,
      ).map(({ cpus }) => cpus),
    ).toEqual([
      [0, 1],
      [2, 3, 4],
      [5, 6],
    ]);
    expect(
      planGroups(
        {
          nodes: [
            [0, 1],
            [2, 3],
          ],
        },
        4,
      ).map(({ cpus }) => cpus),
    ).toEqual([
      [0, 1],
      [2, 3],
    ]);
  });

  it('take every processor once, whatever the host', () => {
    const anyNodes = fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(anyNodes, fc.option(fc.integer({ min: 1, max: 80 })), (sizes, size) => {
        let next = 0;
        const nodes = sizes.map((count) => Array.from({ length: count }, () => next++));
        const groups = planGroups({ nodes }, size);
        expect(groups.flatMap(({ cpus }) => cpus)).toEqual(nodes.flat());
        expect(groups.every(({ cpus }) => nodes.some((node) => cpus.every((cpu) => node.includes(cpu))))).toBe(true);
        if (size !== null) {
          for (const { cpus } of groups) expect(cpus.length).toBeLessThan(2 * size);
        }
      }),
    );
  });

  it('nobody keeps to one that is the whole host, and all of them rank the same', () => {
    const groups = new CpuGroups(planGroups({ nodes: [[0, 1]] }, null), null);
    expect(
      groups.seat(
        () => [],
        () => [],
      ),
    ).toBeNull();
    expect(groups.ranking(() => [null, null])(null)).toBe(0);
  });

  it('have no more acting than K, whatever their number', () => {
    const one = new CpuGroups(planGroups({ nodes: [[0, 1]] }, null), 2);
    expect(one.ranking(() => [null])(null)).toBe(1);
    expect(one.ranking(() => [null, null])(null)).toBe(Number.POSITIVE_INFINITY);
    const two = new CpuGroups(planGroups({ nodes: [[0, 1]] }, 1), 1);
    const [first, second] = two.all;
    if (!first || !second) throw new Error('two groups');
    expect(
      two.seat(
        () => [first],
        () => [first],
      ),
    ).toBe(second);
    // The one with a place comes first, however many are in it.
    expect(
      two.seat(
        () => [first, second, second],
        () => [first],
      ),
    ).toBe(second);
    const full = two.full(() => [first]);
    expect([full?.(first), full?.(second)]).toEqual([true, false]);
    // With no place anywhere none is worse off than the others.
    expect(two.full(() => [first, second])).toBeNull();
    const beside = two.ranking(() => [first]);
    expect([beside(first), beside(second)]).toEqual([Number.POSITIVE_INFINITY, 0]);
  });

  it('are filled evenly', () => {
    const groups = planGroups({ nodes: [[0, 1, 2]] }, 1);
    const taken = [0, 0, 0];
    for (let n = 0; n < 7; n += 1) {
      const { index } = emptiest(groups, (group) => taken[group.index] ?? 0);
      taken[index] = (taken[index] ?? 0) + 1;
    }
    expect(taken).toEqual([3, 2, 2]);
  });
});

describe('the processors of a host', () => {
  it('are read as the kernel lists them', () => {
    expect(parseCpuList('0-2,5,8-9')).toEqual([0, 1, 2, 5, 8, 9]);
    expect(parseCpuList('')).toEqual([]);
    expect(() => parseCpuList('0-x')).toThrow('"0-x" is no list of processors');
  });

  it('are those that this process may use', async () => {
    const { nodes } = await cpuTopology();
    expect(nodes.flat().length).toBeGreaterThanOrEqual(1);
    expect(new Set(nodes.flat()).size).toBe(nodes.flat().length);
  });
});
