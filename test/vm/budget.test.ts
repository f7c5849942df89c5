import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { MEMORY_FLOOR_BYTES } from '../../runner/replica/capacity.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import type { Pace } from '../../runner/replica/household.ts';
import { mergedBytes } from '../../runner/replica/ksm.ts';
import { readLedger } from '../../runner/replica/ledger.ts';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { emptyProfile, type Figure, mergeSamples, type Profile, type Samples } from '../../runner/replica/profile.ts';
import { readProfile } from '../../runner/replica/profile-file.ts';
import { ownMemory } from '../../runner/replica/usage.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

const image = 'debian-desktop';
const [mib, gib] = [2 ** 20, 2 ** 30];
const quick: Pace = { lookMs: 250 };
let vm: Fixture;
let folder: string;
beforeAll(async () => {
  vm = await openFixture('test-budget');
});
afterAll(() => vm?.[Symbol.asyncDispose]());
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-budget-'));
  await mkdir(path.join(folder, 'proc/pressure'), { recursive: true });
  await mkdir(path.join(folder, 'proc/self'));
  await memory(20 * gib);
  await stalled(0);
});
afterEach(() => rm(folder, { recursive: true }));

const memory = (bytes: number) =>
  writeFile(path.join(folder, 'proc/meminfo'), `MemAvailable:    ${Math.round(bytes / 1_024)} kB\n`);
const stalled = (percent: number) =>
  writeFile(
    path.join(folder, 'proc/pressure/memory'),
    `some avg10=${percent} avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n`,
  );
const open = (settings: object, pace: Pace = quick): Promise<VirtualPool> =>
  vm.pool(settings, 'test-budget', {
    ...{ kernel: { proc: path.join(folder, 'proc'), sys: '/sys' }, ledgerFolder: path.join(folder, 'ledger'), pace },
  });
async function reaches(pool: VirtualPool, phases: object, timeout = 90_000): Promise<void> {
  await expect.poll(() => pool.phases(), { timeout }).toEqual(phases);
}
async function claim(pool: VirtualPool) {
  await pool.waitReady(image, never);
  const reservation = pool.reserve(image);
  if (!reservation) throw new Error(`nothing to reserve: ${pool.refusalOf(image)}`);
  return reservation.claim(never);
}

describe('under pressure', () => {
  it('the warm pool shrinks, then no job is pulled, and all comes back by itself; what is leased is left alone', async () => {
    await using pool = await open({ acting: 2, ready: 2, frozen: 2 });
    await reaches(pool, { hot: 2, frozen: 2 });
    const leased = await claim(pool);
    await reaches(pool, { hot: 2, frozen: 2, leased: 1 });
    expect(pool.trouble).toBeNull();

    await stalled(31);
    await expect.poll(() => pool.trouble, { timeout: 30_000 }).toBe('memory: tasks stalled 31 % of the last 10 s');
    const { leased: mine, ...warm } = pool.phases();
    expect(mine).toBe(1);
    expect(
      Object.values(warm).reduce((sum, count) => sum + count, 0),
      'one to be able to ask',
    ).toBe(1);
    expect((await leased.screenshot(never)).length).toBeGreaterThan(1_000);

    await stalled(0);
    await expect.poll(() => pool.trouble, { timeout: 30_000 }).toBeNull();
    await reaches(pool, { hot: 2, frozen: 2, leased: 1 });
    await leased.discard();
  });

  it('a pool that gets no room says what one more would leave, and fills once there is some', async () => {
    await memory(0.5 * gib);
    await using pool = await open({ acting: 1, ready: 1 });
    await sleep(1_000);
    expect(pool.phases()).toEqual({});
    expect(pool.states()[0]?.refused ?? pool.trouble).toMatch(
      /^memory: (1 more would leave 0\.5 GiB, floor is 1 GiB|0\.5 GiB free, floor is 1\.0 GiB)$/,
    );
    await memory(20 * gib);
    await reaches(pool, { hot: 1 });
    expect(pool.trouble).toBeNull();
  });
});

describe('demand', () => {
  it('makes hot ones ahead of claims; an image that is not asked for gives them back, then all but one frozen', async () => {
    await using pool = await open({ acting: 2 }, { ...quick, hotIdleMs: 4_000, frozenIdleMs: 45_000 });
    // However long it takes to make them: jobs wait.
    pool.expect(image, 7);
    await reaches(pool, { hot: 2, frozen: 2 });
    await sleep(5_000);
    expect(pool.phases()).toEqual({ hot: 2, frozen: 2 });
    pool.expect(image, 0);
    await reaches(pool, { frozen: 2 });
    await reaches(pool, { frozen: 1 });
    pool.expect(image, 7);
    await reaches(pool, { hot: 2, frozen: 2 });
    expect(pool.states()).toMatchObject([{ image, waiting: 7, target: { hot: 2, frozen: 2 }, refused: null }]);
    const replica = await claim(pool);
    expect(replica.phase).toBe('leased');
    await replica.discard();
  });
});

describe('a profile', () => {
  it('is learned from replicas that ran, and kept with the template', async () => {
    const before = await readProfile(vm.area.path, vm.template.key);
    const pool = await open({ acting: 1, ready: 1, frozen: 1 }, { ...quick, learnMs: 500, quietMs: 6_000 });
    await reaches(pool, { hot: 1, frozen: 1 });
    const replica = await claim(pool);
    for (let look = 0; look < 3; look += 1) await replica.settle({ minMs: 50, maxMs: 5_000 }, never);
    await replica.guest.exec(
      { argv: ['sh', '-c', 'dd if=/dev/urandom of=f bs=1M count=8; sync'], timeoutMs: 60_000 },
      never,
    );
    await replica.discard();
    await reaches(pool, { hot: 1, frozen: 1 });
    const idle = (before?.figures.idle_cpu?.count ?? 0) + 1;
    // Enough of them are watched once in the life of a template.
    if (idle <= 8) {
      await expect
        .poll(async () => (await readProfile(vm.area.path, vm.template.key))?.figures.idle_cpu?.count, {
          timeout: 60_000,
        })
        .toBeGreaterThanOrEqual(idle);
      await expect.poll(() => pool.phases().hot).toBe(1);
    }
    await pool[Symbol.asyncDispose]();
    const after = await readProfile(vm.area.path, vm.template.key);
    const figure = (name: Figure) => {
      const { count = 0, values = [] } = after?.figures[name] ?? {};
      expect(count, name).toBeGreaterThan(before?.figures[name]?.count ?? 0);
      return values.at(-1) ?? Number.NaN;
    };
    expect(after).toMatchObject({ image, accelerator: vm.engine.accelerator });
    expect(figure('clone_ms')).toBeGreaterThan(10);
    const [frozen, hot, acting] = [figure('frozen_bytes'), figure('hot_bytes'), figure('acting_bytes')];
    expect(frozen).toBeGreaterThan(5 * mib);
    expect(hot).toBeGreaterThan(frozen);
    expect(acting).toBeGreaterThan(hot);
    expect(acting).toBeLessThan(2 * gib);
    expect(figure('episode_disk_bytes')).toBeGreaterThan(8 * mib);
    expect(figure('step_cpu_ms')).toBeGreaterThan(0);
    expect(figure('acting_cpu')).toBeGreaterThan(0);
    expect(figure('acting_cpu')).toBeLessThan(8);
    const episodes = (name: Figure) => (after?.figures[name]?.count ?? 0) - (before?.figures[name]?.count ?? 0);
    expect([episodes('acting_bytes'), episodes('acting_cpu'), episodes('episode_disk_bytes')]).toEqual([1, 1, 1]);
  });

  it("counts a replica's own memory as its map does, at a fraction of the cost", async () => {
    const replica = await vm.replica('hot');
    const { pid } = replica.machine;
    const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8');
    const status = await readFile(`/proc/${pid}/status`, 'utf8');
    const kib = (text: string, field: string): number =>
      Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(text)?.[1]);
    const mapped = (kib(rollup, 'Private_Dirty') + kib(status, 'VmPTE')) * 1_024;
    const own = ownMemory(pid) ?? 0;
    expect(own / mapped).toBeGreaterThan(0.9);
    expect(own / mapped).toBeLessThan(1.1);
    await replica.discard();
  });
});

const ksm = '/sys/kernel/mm/ksm/run';

describe.skipIf(!existsSync(ksm))('merging of memory', () => {
  it('is on for the replicas of a pool that wants it, saves some, and is then as the host had it', async () => {
    const before = await readFile(ksm, 'utf8');
    const plain = await vm.replica('frozen');
    const mergeable = (pid: number) => readFile(`/proc/${pid}/ksm_stat`, 'utf8');
    expect(await mergeable(plain.machine.pid)).toContain('ksm_merge_any: no');
    {
      await using pool = await vm.pool({ acting: 1, ready: 1, frozen: 2, mergeMemory: true });
      await reaches(pool, { hot: 1, frozen: 2 });
      expect((await readFile(ksm, 'utf8')).trim()).toBe('1');
      const mine = await readdir(replicasFolder(vm.area.path, 'test-budget'));
      const machines = (await qemuProcesses()).filter(({ uuid }) => mine.includes(uuid) && uuid !== plain.id);
      expect(machines).toHaveLength(3);
      for (const { pid } of machines) expect(await mergeable(pid)).toContain('ksm_merge_any: yes');
      await expect.poll(() => mergedBytes(), { timeout: 60_000 }).toBeGreaterThan(mib);
    }
    expect(await readFile(ksm, 'utf8')).toBe(before);
    await plain.discard();
  });
});

describe('two pools in two processes', () => {
  const program = path.join(import.meta.dirname, 'budget-process.ts');
  let children: ChildProcess[] = [];
  afterEach(() => {
    for (const child of children) child.kill('SIGKILL');
    children = [];
  });

  it('share one budget, take turns, and the one has what the other leaves when it is killed', async () => {
    const file = path.join(vm.area.path, 'templates', vm.template.key, 'profile.json');
    const kept = await readFile(file, 'utf8').catch(() => null);
    // Large ones, as assumed or measured elsewhere: one acting replica fits, and its like does not.
    const many = (bytes: number): number[] => Array.from({ length: 64 }, () => bytes);
    const samples: Samples = { acting_bytes: many(gib), hot_bytes: many(96 * mib), frozen_bytes: many(24 * mib) };
    const { image: own, hardware } = vm.template;
    const of = { image: own.name, image_digest: own.digest, memory_mib: hardware.memoryMib };
    const profile: Profile = mergeSamples(emptyProfile({ ...of, accelerator: hardware.accelerator }), samples);
    await writeFile(file, JSON.stringify(profile));
    try {
      await memory(MEMORY_FLOOR_BYTES + 1.5 * gib);
      const [ledger, log, stop] = ['ledger', 'log', 'stop'].map((name) => path.join(folder, name)) as [
        string,
        string,
        string,
      ];
      await writeFile(log, '');
      let said = '';
      const start = (runner: string): ChildProcess => {
        const args = ['--import', 'tsx', program, runner, ledger, path.join(folder, 'proc'), log, stop];
        const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] });
        child.stderr?.setEncoding('utf8').on('data', (text: string) => {
          said += text;
        });
        children.push(child);
        return child;
      };
      const lines = async (): Promise<string[]> => (await readFile(log, 'utf8')).trim().split('\n').filter(Boolean);
      const grants = async (runner: string) => {
        expect(
          children.filter(({ exitCode }) => exitCode !== null && exitCode !== 0),
          said,
        ).toEqual([]);
        return (await lines()).filter((line) => line === `+ ${runner}`).length;
      };
      const first = start('test-budget-a');
      await expect.poll(() => grants('test-budget-a'), { timeout: 120_000 }).toBeGreaterThan(1);
      const second = start('test-budget-b');
      await expect.poll(() => grants('test-budget-b'), { timeout: 120_000 }).toBeGreaterThan(3);
      const both = await grants('test-budget-a');
      await expect.poll(() => grants('test-budget-a'), { timeout: 60_000 }).toBeGreaterThan(both + 1);
      expect(
        readLedger(ledger)
          .map(({ runner }) => runner)
          .sort(),
      ).toEqual(['test-budget-a', 'test-budget-b']);
      let [held, most] = [0, 0];
      for (const line of await lines()) {
        held += line.startsWith('+') ? 1 : -1;
        most = Math.max(most, held);
      }
      expect(most).toBe(1);
      first.kill('SIGKILL');
      await once(first, 'exit');
      const alone = await grants('test-budget-b');
      await expect.poll(() => grants('test-budget-b'), { timeout: 60_000 }).toBeGreaterThan(alone + 2);
      expect(readLedger(ledger).map(({ runner }) => runner)).toEqual(['test-budget-b']);
      await writeFile(stop, '');
      const [code] = second.exitCode === null ? await once(second, 'exit') : [second.exitCode];
      expect(code).toBe(0);
      // What the killed one left is reaped by the next of its name.
      await using _next = await vm.pool({ acting: 1, ready: 1 }, 'test-budget-a');
    } finally {
      if (kept === null) await rm(file);
      else await writeFile(file, kept);
    }
  });
});
