import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { cpuTopology } from '../../runner/system/cpu-topology.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

const image = 'debian-desktop';
let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-groups');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

async function claim(pool: VirtualPool): Promise<VirtualReplica> {
  await pool.waitReady(image, never);
  const reservation = pool.reserve(image);
  if (!reservation) throw new Error('nothing to reserve although it is ready');
  return (await reservation.claim(never)) as VirtualReplica;
}

/** What the kernel lets each thread of a replica's machine run on. */
async function allowed({ machine }: VirtualReplica): Promise<string[]> {
  const tasks = `/proc/${machine.pid}/task`;
  const all = await Promise.all((await readdir(tasks)).map((task) => readFile(`${tasks}/${task}/status`, 'latin1')));
  return [...new Set(all.map((status) => /^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? ''))];
}

describe('groups of processors', async () => {
  const cpus = (await cpuTopology()).nodes.flat();

  it.skipIf(cpus.length < 2)('hold K acting replicas each, which keep to their processors', async () => {
    await using pool = await vm.pool({ groupCpus: 1, perGroup: 1, ready: cpus.length });
    expect(pool.capacity).toMatchObject({ acting: cpus.length, bound: 'group' });
    const acting: VirtualReplica[] = [];
    for (const _ of cpus) acting.push(await claim(pool));
    const seats = await Promise.all(acting.map(allowed));
    expect(seats.flat().sort()).toEqual(cpus.map(String).sort());
    await expect.poll(() => pool.phases().hot ?? 0, { timeout: 90_000 }).toBeGreaterThan(0);
    expect(pool.reserve(image), 'every group is full').toBeNull();
    const [first] = acting;
    const seat = first?.group;
    await first?.discard();
    const next = await claim(pool);
    expect(next.group).toEqual(seat);
  });

  it('are one for the whole host where nobody asks for others, and no replica is bound to it', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1 });
    const replica = await claim(pool);
    expect(replica.group).toBeNull();
    expect(await allowed(replica)).toEqual([
      /^Cpus_allowed_list:\s*(\S+)$/m.exec(await readFile('/proc/self/status', 'latin1'))?.[1],
    ]);
  });
});

describe('clones for the stock', () => {
  it('are put off while one acts, those that are missed are not, and all is made once none acts', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1, frozen: 6 }, 'test-groups', {
      pace: { lookMs: 250, restFactor: 1e6 },
    });
    await pool.waitReady(image, never);
    const replica = await claim(pool);
    await expect.poll(() => pool.phases().hot ?? 0, { timeout: 90_000 }).toBe(1);
    await sleep(3_000);
    expect(pool.phases().frozen ?? 0).toBeLessThan(6);
    await replica.discard();
    await expect.poll(() => pool.phases().frozen ?? 0, { timeout: 90_000 }).toBe(6);
  });
});
