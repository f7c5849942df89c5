import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import { reapOwned } from '../../runner/replica/reap.ts';
import { openArea } from '../../runner/storage/area.ts';
import { dataDir, type Fixture, leftovers, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-reap');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

async function startRunner(runnerId: string): Promise<ChildProcess> {
  const script = path.join(import.meta.dirname, 'pool-process.ts');
  const child = spawn(process.execPath, ['--import', 'tsx', script, runnerId], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout });
  await once(lines, 'line', { signal: AbortSignal.timeout(120_000) });
  return child;
}

async function qemusOf(runnerId: string): Promise<number[]> {
  const ids = await readdir(replicasFolder(vm.area.path, runnerId));
  return (await qemuProcesses()).filter(({ uuid }) => ids.includes(uuid)).map(({ pid }) => pid);
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

describe('after SIGKILL of a runner', () => {
  it('no QEMU of it lives on, and the next of its name leaves nothing of it; another runner is not touched', async () => {
    const other = await vm.replica('leased');
    const child = await startRunner('test-reap-killed');
    expect(await qemusOf('test-reap-killed')).toHaveLength(2);
    await kill(child);
    await expect.poll(() => qemusOf('test-reap-killed'), { timeout: 10_000 }).toEqual([]);

    const killed = { ...vm.engine, runnerId: 'test-reap-killed' };
    const left = await leftovers(killed);
    expect(left.filter((line) => line.startsWith('replica')).length).toBeGreaterThanOrEqual(2);
    expect(left.filter((line) => line.startsWith('run folder')).length).toBeGreaterThanOrEqual(2);
    const cgroups = left.filter((line) => line.startsWith('cgroup'));
    if (vm.engine.isolation.cgroups) expect(cgroups.length).toBeGreaterThanOrEqual(2);
    const identities = await readdir(path.join(vm.area.path, 'identities'));
    const reaped = await reapOwned(vm.area.path, 'test-reap-killed');
    expect(reaped.replicas).toBe(left.filter((line) => line.startsWith('replica')).length);
    expect(await leftovers(killed)).toEqual([]);
    for (const line of cgroups) expect(existsSync(path.dirname(line.slice('cgroup '.length))), line).toBe(false);
    expect((await readdir(path.join(vm.area.path, 'identities'))).length).toBe(identities.length - reaped.replicas);

    expect(other.lost.aborted).toBe(false);
    expect((await other.screenshot(never)).length).toBeGreaterThan(1_000);
    await other.discard();
  });

  it('a QEMU that lived on all the same is killed by the reaper', async () => {
    // What a runner leaves when it is killed in the middle: here the record of a replica whose QEMU still runs.
    const replica = await vm.replica('frozen');
    const { pid } = replica.machine;
    expect(await reapOwned(vm.area.path, 'test-reap')).toEqual({ processes: 1, replicas: 1, resisted: [] });
    expect((await qemuProcesses()).map((found) => found.pid)).not.toContain(pid);
    await replica.discard();
  });

  it('the storage area it had mounted is found again and unmounted by the last to leave', async () => {
    const again = await openArea({ dataDir, floorBytes: 2 ** 31 });
    expect(again.path).toBe(vm.area.path);
    await again[Symbol.asyncDispose]();
    expect(await readdir(vm.area.path)).toContain('templates');
  });
});
