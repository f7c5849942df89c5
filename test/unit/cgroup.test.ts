import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CgroupTree, lookForCgroups, oomDeath, processesIn, removeCgroup } from '../../runner/system/cgroup.ts';
import type { CgroupPlace, Controller } from '../../runner/system/cgroup-plan.ts';

const MIB = 2 ** 20;
const limits = { memoryBytes: 1_344 * MIB, pids: 128 };
const controllers: Controller[] = ['memory', 'pids', 'cpu'];
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-cgroup-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** In a folder in place of the kernel's file system: what is written stays to be read. */
const read = (...names: string[]): Promise<string> => readFile(path.join(folder, ...names), 'utf8');

describe('a cgroup of version 2', () => {
  const place = (): CgroupPlace => ({
    ...{ version: 2, groups: [{ folder: path.join(folder, 'gymbus/a'), controllers }], delegated: null },
  });

  it('is made below folders that hand its controllers down, with its limits', async () => {
    const tree = new CgroupTree(place(), 2);
    await tree.open();
    const own = path.join(folder, 'gymbus/a/one');
    expect(tree.foldersOf('one')).toEqual([own]);
    expect(await tree.make('one', limits)).toEqual([path.join(own, 'cgroup.procs')]);
    for (const at of ['.', 'gymbus', 'gymbus/a']) {
      expect(await read(at, 'cgroup.subtree_control')).toBe('+memory +pids +cpu');
    }
    expect(await read('gymbus/a/one/memory.max')).toBe(String(1_344 * MIB));
    expect(await read('gymbus/a/one/pids.max')).toBe('128');
    expect([await read('gymbus/cpu.weight'), await read('gymbus/a/cpu.weight')]).toEqual(['600', '600']);
    expect(existsSync(path.join(own, 'cgroup.subtree_control'))).toBe(false);
    expect(tree.description).toBe(`cgroups version 2 (memory, pids, cpu) in ${folder}/gymbus/a`);
  });

  it('lies beside its runner, which moves out of the way with all its children, where both share what was delegated', async () => {
    const [leaf, unit] = [path.join(folder, 'runner'), folder];
    await writeFile(path.join(unit, 'cgroup.procs'), '17\n4242\n');
    await writeFile(path.join(unit, 'cgroup.subtree_control'), 'cpu');
    const groups = [{ folder: path.join(unit, 'gymbus'), controllers }];
    const tree = new CgroupTree({ version: 2, groups, delegated: { folder: unit, leaf } }, 88);
    await tree.open();
    expect(await read('runner/cgroup.procs')).toBe('4242');
    expect(await read('cgroup.subtree_control')).toBe('+memory +pids');
    expect(await read('runner/cpu.weight')).toBe('10000');
    await tree.make('one', limits);
    expect(await read('gymbus/one/memory.max')).toBe(String(1_344 * MIB));
  });
});

describe('what killed a process', () => {
  const files = async (of: Record<string, string>): Promise<string[]> => {
    for (const [name, text] of Object.entries(of)) await writeFile(path.join(folder, name), text);
    return [path.join(folder, 'gone'), folder];
  };

  it.each<[string, Record<string, string>, unknown]>([
    ['the limit, version 2', { 'memory.events': 'max 9\noom 1\noom_kill 1\n', 'memory.max': '1048576\n' }, 1_048_576],
    ['the host, version 2', { 'memory.events': 'max 0\noom 0\noom_kill 1\n', 'memory.max': '1048576\n' }, null],
    ['no limit, version 2', { 'memory.events': 'max 0\noom 2\noom_kill 1\n', 'memory.max': 'max\n' }, null],
    [
      'the limit, version 1',
      { 'memory.oom_control': 'under_oom 0\noom_kill 1\n', 'memory.failcnt': '7\n', 'memory.limit_in_bytes': '4096\n' },
      4_096,
    ],
    [
      'the host, version 1',
      { 'memory.oom_control': 'under_oom 0\noom_kill 2\n', 'memory.failcnt': '0\n', 'memory.limit_in_bytes': '4096\n' },
      null,
    ],
  ])('%s', async (_, of, memoryLimitBytes) => {
    expect(await oomDeath(await files(of))).toEqual({ memoryLimitBytes });
  });

  it.each<[string, Record<string, string>]>([
    ['nothing of it, version 2', { 'memory.events': 'max 900\noom 3\noom_kill 0\noom_group_kill 0\n' }],
    [
      'nothing of it, version 1',
      { 'memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n', 'memory.failcnt': '5' },
    ],
    ['a cgroup that is gone', {}],
    ['what makes no sense', { 'memory.events': 'oom_kill\n\0', 'memory.oom_control': '' }],
  ])('%s', async (_, of) => {
    expect(await oomDeath(await files(of))).toBeNull();
  });
});

const plan = lookForCgroups(`test-${process.pid}`);
describe.skipIf(plan.version === null)('a real cgroup', () => {
  const tree = (): CgroupTree => new CgroupTree(plan as CgroupPlace, 2);

  it('bounds what joins it, and is removed with that and with the folders above', async () => {
    const joins = await tree().make('one', limits);
    const folders = tree().foldersOf('one');
    const above = [...new Set(folders.map((at) => path.dirname(at)))];
    const join =
      'for (splice @ARGV) { open my $file, ">", $_ or die; syswrite $file, "0" } fork; print "in\\n"; close STDOUT; sleep 600';
    const child = spawn('perl', ['-e', `$| = 1; ${join}`, ...joins], { stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    for (const at of folders) {
      await expect.poll(() => processesIn(at).length).toBe(2);
      expect(processesIn(at)).toContain(child.pid);
    }
    // Another runner's, beside it.
    await tree().make('two', limits);
    for (const at of folders) await removeCgroup(at);
    for (const at of folders) await removeCgroup(at);
    expect(folders.filter((at) => existsSync(at))).toEqual([]);
    expect(
      child.signalCode ?? (await new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)))),
    ).toBe('SIGKILL');
    for (const at of above) expect(await readdir(at)).toContain('two');
    for (const at of tree().foldersOf('two')) await removeCgroup(at);
    expect(above.filter((at) => existsSync(at))).toEqual([]);
  });

  it('is made by many at once, while others remove what lies above', async () => {
    const names = Array.from({ length: 24 }, (_, n) => `many-${n}`);
    const once = async (name: string): Promise<void> => {
      await tree().make(name, limits);
      for (const at of tree().foldersOf(name)) await removeCgroup(at);
    };
    await Promise.all(names.map(once));
    expect(
      tree()
        .foldersOf('')
        .filter((at) => existsSync(at)),
    ).toEqual([]);
  });
});
