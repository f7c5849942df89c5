import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Ledger, readLedger } from '../../runner/replica/ledger.ts';
import type { LedgerOrder } from '../support/ledger-process.ts';

const program = path.resolve(import.meta.dirname, '../support/ledger-process.ts');
const gib = 2 ** 30;
const none = { memoryBytes: 0, diskBytes: 0 };
let folder: string;
let order: LedgerOrder;
let children: ChildProcess[];

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-ledger-'));
  children = [];
  order = {
    ...{ folder: path.join(folder, 'ledger'), log: path.join(folder, 'log'), stop: path.join(folder, 'stop') },
    ...{ runner: '', cpus: 1_000, memoryBytes: 100 * gib, placeBytes: gib, milliCpus: 1, places: 10, holdMs: 0 },
  };
  await writeFile(order.log, '');
});
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL');
  await rm(folder, { recursive: true });
});

function start(runner: string, over: Partial<LedgerOrder> = {}): ChildProcess {
  const args = ['--import', 'tsx', program, JSON.stringify({ ...order, runner, ...over })];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  children.push(child);
  return child;
}

async function stop(): Promise<void> {
  await writeFile(order.stop, '');
  for (const child of children) {
    const { exitCode, signalCode } = child;
    const code = exitCode ?? signalCode ?? (await once(child, 'exit'))[0];
    if (signalCode === null) expect(code).toBe(0);
  }
}

/** Grants and returns in the order they were written down. */
async function lines(): Promise<string[]> {
  return (await readFile(order.log, 'utf8')).trim().split('\n').filter(Boolean);
}

/** The most that were held at once, by all, and how many grants each had. */
async function account(): Promise<{ most: number; grants: Record<string, number>; held: number }> {
  let [held, most] = [0, 0];
  const grants: Record<string, number> = {};
  for (const line of await lines()) {
    const [sign, runner = ''] = line.split(' ');
    held += sign === '+' ? 1 : -1;
    most = Math.max(most, held);
    if (sign === '+') grants[runner] = (grants[runner] ?? 0) + 1;
  }
  return { most, grants, held };
}

const granted = async (count: number, ...names: string[]): Promise<void> => {
  const least = async (): Promise<number> => {
    const { grants } = await account();
    return Math.min(...names.map((name) => grants[name] ?? 0));
  };
  await expect.poll(least, { timeout: 30_000 }).toBeGreaterThan(count);
};

const look = (over: object = {}) => ({
  ...{ memoryBytes: 10 * gib, cpus: 2, diskBytes: 100 * gib, devices: [1], pressure: null },
  ...over,
});
const spoken = { acting: 0, milliCpus: 0, memoryBytes: 0, diskBytes: 0 };

describe('several runners on one host', () => {
  it.each([
    ['memory', { memoryBytes: 3.5 * gib }, 3],
    ['processors', { cpus: 1, milliCpus: 333 }, 3],
  ])('never take more %s than there is, however they hammer', async (_, limits, most) => {
    for (const name of ['a', 'b', 'c', 'd']) start(name, { ...limits, holdMs: name < 'c' ? 0 : 3 });
    await granted(50, 'a', 'b', 'c', 'd');
    // On a busy host their turns seldom meet.
    const held = async (): Promise<number> => (await account()).most;
    await expect
      .poll(held, { timeout: 60_000, message: 'all there is was taken at some time' })
      .toBeGreaterThanOrEqual(most);
    await stop();
    const seen = await account();
    expect(seen.held).toBe(0);
    expect(seen.most).toBe(most);
    expect(await readdir(order.folder)).toEqual([]);
  });

  it('have what a killed one had spoken for', async () => {
    const limits = { memoryBytes: 4.5 * gib, holdMs: 600_000, places: 4 };
    const first = start('a', limits);
    await expect.poll(async () => (await account()).held, { timeout: 30_000 }).toBe(4);
    start('b', { ...limits, holdMs: 1 });
    await expect.poll(() => readLedger(order.folder).length, { timeout: 30_000 }).toBe(2);
    await sleep(200);
    expect((await account()).grants.b).toBeUndefined();
    first.kill('SIGKILL');
    await granted(20, 'b');
    expect(readLedger(order.folder).map(({ runner }) => runner)).toEqual(['b']);
    expect(await readdir(order.folder)).toHaveLength(1);
    await stop();
  });

  it('share places by need: one that starts second soon has as many', async () => {
    const limits = { cpus: 2, milliCpus: 333, holdMs: 30 };
    start('a', limits);
    await expect.poll(async () => (await account()).grants.a ?? 0, { timeout: 30_000 }).toBeGreaterThan(60);
    start('b', limits);
    await granted(5, 'b');
    const before = (await account()).grants;
    await expect
      .poll(async () => ((await account()).grants.b ?? 0) - (before.b ?? 0), { timeout: 30_000 })
      .toBeGreaterThan(150);
    const after = (await account()).grants;
    await stop();
    const [a, b] = ['a', 'b'].map((name) => (after[name] ?? 0) - (before[name] ?? 0));
    expect((b ?? 0) / ((a ?? 0) + (b ?? 0))).toBeGreaterThan(0.4);
    expect((b ?? 0) / ((a ?? 0) + (b ?? 0))).toBeLessThan(0.6);
  });

  it('all get a turn when there are fewer places than runners', async () => {
    for (const name of ['a', 'b', 'c']) start(name, { cpus: 1, milliCpus: 500, holdMs: 20 });
    // Counted from when all of them are there: processes start one after the other.
    await granted(3, 'a', 'b', 'c');
    const before = (await account()).grants;
    await granted(3 + Math.max(...Object.values(before)) + 40, 'a', 'b', 'c');
    const after = (await account()).grants;
    await stop();
    const turns = ['a', 'b', 'c'].map((name) => (after[name] ?? 0) - (before[name] ?? 0));
    expect(Math.max(...turns)).toBeLessThan(2 * Math.min(...turns));
  });
});

describe('admission', () => {
  it('says what one more would leave, and what the floor is', () => {
    using one = new Ledger(order.folder, 'a', look, { memoryBytes: gib, diskBytes: 2 * gib });
    using two = new Ledger(order.folder, 'b', () => look({ devices: [1, 2], diskBytes: 6 * gib }), {
      ...{ memoryBytes: gib, diskBytes: 2 * gib },
    });
    using far = new Ledger(order.folder, 'c', () => look({ devices: [3], diskBytes: 6 * gib }), {
      ...{ memoryBytes: gib, diskBytes: 2 * gib },
    });
    expect(one.ask({ ...spoken, memoryBytes: 8 * gib, diskBytes: 3 * gib })).toBeNull();
    expect(two.ask({ ...spoken, memoryBytes: 1.2 * gib })).toBe('memory: 1 more would leave 0.8 GiB, floor is 1 GiB');
    expect(two.ask({ ...spoken, diskBytes: 1.5 * gib })).toBe('disk: 1 more would leave 1.5 GiB, floor is 2 GiB');
    expect(far.ask({ ...spoken, diskBytes: 1.5 * gib }), 'another disk').toBeNull();
    // What replicas have touched the kernel has already taken off.
    one.set({ ...spoken, memoryBytes: 8 * gib }, { residentBytes: 2 * gib });
    expect(two.ask({ ...spoken, memoryBytes: 1.2 * gib })).toBeNull();
    expect(one.ask({ acting: 1, milliCpus: 3_000, memoryBytes: 8 * gib, diskBytes: 0 }, { act: true })).toBeNull();
    expect(two.ask({ acting: 1, milliCpus: 500, memoryBytes: 1.2 * gib, diskBytes: 0 }, { act: true })).toBe(
      'cpu: 1 more would take 3.5 processors, there are 2',
    );
  });

  it('lets a small host have its first, while the floor holds', () => {
    using small = new Ledger(order.folder, 'a', () => look({ memoryBytes: 1.5 * gib }), { ...none, memoryBytes: gib });
    const acting = { ...spoken, acting: 1, memoryBytes: 1.2 * gib };
    expect(small.ask(acting, { act: true })).toBeNull();
    expect(small.ask({ ...acting, acting: 2, memoryBytes: 2.4 * gib }, { act: true })).toBe(
      'memory: 1 more would leave -0.9 GiB, floor is 1 GiB',
    );
    small.set(spoken);
    using full = new Ledger(order.folder, 'b', () => look({ memoryBytes: 0.9 * gib }), { ...none, memoryBytes: gib });
    expect(full.ask(acting, { act: true })).toMatch(/^memory: 1 more would leave/);
  });

  it('keeps no place for one that waits without asking again', async () => {
    using one = new Ledger(order.folder, 'a', look, none);
    using two = new Ledger(order.folder, 'b', look, none);
    const act = (acting: number) => ({ ...spoken, acting, milliCpus: acting * 100 });
    expect(one.ask(act(1), { act: true })).toBeNull();
    two.waits(true);
    expect(one.ask(act(2), { act: true })).toBe('cpu: b waits for a place and has fewer');
    await expect
      .poll(
        () => {
          // What else it writes down does not renew it.
          two.set(spoken, { frozen: 1 });
          return one.ask(act(2), { act: true });
        },
        { timeout: 10_000, interval: 100 },
      )
      .toBeNull();
  });

  it('leaves room for a runner that has nothing to act, for some time', () => {
    using one = new Ledger(order.folder, 'a', look, { ...none, memoryBytes: gib });
    using two = new Ledger(order.folder, 'b', look, { ...none, memoryBytes: gib });
    const act = (acting: number) => ({ acting, milliCpus: acting, memoryBytes: acting * 3 * gib, diskBytes: 0 });
    expect(one.ask(act(1), { act: true })).toBeNull();
    expect(one.ask(act(2), { act: true })).toBeNull();
    // Of 10 GiB one is the floor and three are left.
    expect(two.ask({ ...spoken, memoryBytes: 3.5 * gib }, { wants: true })).toMatch(/^memory: /);
    two.waits(true);
    one.set(act(1));
    expect(one.ask(act(2), { act: true })).toBe('memory: b has none to act and waits for 3.5 GiB');
    expect(two.ask({ ...spoken, memoryBytes: 3.5 * gib }, { wants: true })).toBeNull();
  });

  it('refuses, and is as before, where the host or its other runners cannot be read', () => {
    let broken = false;
    const shaky = () => {
      if (broken) throw new Error('EMFILE');
      return look();
    };
    using one = new Ledger(order.folder, 'a', shaky, none);
    expect(one.ask({ ...spoken, memoryBytes: gib })).toBeNull();
    broken = true;
    expect(one.ask({ ...spoken, memoryBytes: 2 * gib })).toBe('room on this host is unknown: EMFILE');
    broken = false;
    expect(one.ask({ ...spoken, memoryBytes: 3 * gib })).toBeNull();
    const [file = ''] = readdirSync(order.folder);
    const foreign = path.join(order.folder, `${file.split('-').slice(0, 2).join('-')}-foreign`);
    writeFileSync(foreign, 'no record');
    expect(one.ask({ ...spoken, memoryBytes: 4 * gib })).toMatch(
      /^room on this host is unknown: .*no record of a ledger/,
    );
    rmSync(foreign);
    rmSync(path.join(order.folder, file));
  });
});
