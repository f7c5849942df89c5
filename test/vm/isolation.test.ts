import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Engine } from '../../runner/replica/engine.ts';
import { memoryLimit } from '../../runner/replica/isolation.ts';
import { ownedBy } from '../../runner/replica/ownership.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { ensureTemplate } from '../../runner/replica/template.ts';
import { cgroupsOf } from '../support/cgroups.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

const MIB = 2 ** 20;
/** Left on the host, whatever guests do: what a runner keeps free by default. */
const FLOOR_BYTES = 2 ** 31;
const MEMORY_FLOOR_BYTES = 2 ** 30;
let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-isolation');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

const ofProcess = async (pid: number, file: string): Promise<string> => readFile(`/proc/${pid}/${file}`, 'utf8');
const field = (text: string, name: string): string[] =>
  new RegExp(`^${name}:?[ \\t]+(.*)$`, 'm').exec(text)?.[1]?.split(/\s+/).filter(Boolean) ?? [];

/** The cgroups of a replica, as its record says. */
async function cgroupsOnRecord(replica: VirtualReplica): Promise<string[]> {
  const { records } = await ownedBy(vm.area.path, vm.engine.runnerId);
  return records.find(({ id }) => id === replica.id)?.cgroups ?? [];
}

/** A file of a replica's cgroups, in whichever of them it is. */
async function cgroupFile(replica: VirtualReplica, ...names: string[]): Promise<string> {
  for (const folder of await cgroupsOnRecord(replica)) {
    for (const name of names) if (existsSync(path.join(folder, name))) return path.join(folder, name);
  }
  throw new Error(`no cgroup of ${replica.id} has ${names.join(' or ')}`);
}
const memoryFile = (replica: VirtualReplica): Promise<string> =>
  cgroupFile(replica, 'memory.max', 'memory.limit_in_bytes');

describe.skipIf(process.getuid?.() !== 0)('the process of a machine', () => {
  let replica: VirtualReplica;
  let pid: number;
  beforeAll(async () => {
    replica = await vm.replica('leased');
    pid = replica.machine.pid;
  });
  afterAll(() => replica?.discard());

  /** What that user can do on this host, with a shell at that. */
  async function asItsUser(script: string): Promise<{ failed: boolean; said: string }> {
    const { uid, gid } = vm.engine.isolation.user ?? { uid: 0, gid: 0 };
    const rights = ['--reuid', String(uid), '--regid', String(gid), '--clear-groups'];
    const { failed, all } = await execa('setpriv', [...rights, 'sh', '-c', script], { reject: false, all: true });
    return { failed, said: all };
  }

  it('has another user, no group of ours, no capability, and no way to get one', async () => {
    const status = await ofProcess(pid, 'status');
    const { user } = vm.engine.isolation;
    expect(user?.uid).toBeGreaterThan(0);
    expect(field(status, 'Uid')).toEqual(Array(4).fill(String(user?.uid)));
    expect(field(status, 'Gid')).toEqual(Array(4).fill(String(user?.gid)));
    expect(field(status, 'Groups')).toEqual(user?.groups.map(String));
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) expect(field(status, set)).toEqual(['0'.repeat(16)]);
    expect(field(status, 'NoNewPrivs')).toEqual(['1']);
    expect(field(status, 'Seccomp')).toEqual(['2']);
  });

  it('is bounded in what it may open and leave behind, and goes before its runner when the host is out of memory', async () => {
    const limits = await ofProcess(pid, 'limits');
    expect(limits).toMatch(/^Max core file size +0 +0 /m);
    expect(limits).toMatch(/^Max open files +1024 +1024 /m);
    expect((await ofProcess(pid, 'oom_score_adj')).trim()).toBe('500');
  });

  it('cannot write what clones are made of, nor reach anything of the storage area by name', async () => {
    const descriptors = new Map<string, string>();
    for (const fd of await readdir(`/proc/${pid}/fd`)) {
      descriptors.set(fd, await readlink(`/proc/${pid}/fd/${fd}`).catch(() => ''));
    }
    const files = [...descriptors].filter(([, file]) => file.startsWith(vm.area.path));
    const folder = path.dirname(vm.template.memoryPath);
    const own = path.join(vm.area.path, 'runners', vm.engine.runnerId, 'replicas', replica.id, 'disk.raw');
    // Its own disk, and the template's memory, of which it has a private view.
    expect([...new Set(files.map(([, file]) => file))].sort()).toEqual([own, vm.template.memoryPath].sort());
    const state = path.join(folder, 'state');
    for (const file of [state, vm.template.diskPath, vm.template.memoryPath, own]) {
      for (const script of [`: >> ${file}`, `cat ${file}`]) {
        expect(await asItsUser(script), script).toMatchObject({
          failed: true,
          said: expect.stringContaining('denied'),
        });
      }
    }
    // By descriptor it may open the memory once more, as QEMU did; the same of its disk is refused.
    const of = (file: string): string | undefined => files.find(([, it]) => it === file)?.[0];
    expect(await asItsUser(`exec 3<> /proc/${pid}/fd/${of(vm.template.memoryPath)}`)).toMatchObject({ failed: false });
    expect(await asItsUser(`exec 3<> /proc/${pid}/fd/${of(own)}`)).toMatchObject({ failed: true });
  });

  it('cannot read what a runner keeps to itself', async () => {
    const secret = path.join(vm.area.path, 'secret-of-another-runner');
    await writeFile(secret, 'password');
    try {
      expect(await asItsUser(`cat ${secret}`)).toMatchObject({ failed: true });
      expect(await asItsUser(`cat /proc/${process.pid}/environ`)).toMatchObject({ failed: true });
      expect(await asItsUser('ls /etc/shadow && cat /etc/shadow')).toMatchObject({ failed: true });
      expect(await asItsUser(`kill -9 ${process.pid}`)).toMatchObject({ failed: true });
    } finally {
      await rm(secret);
    }
  });

  it('has a run folder that only it and its runner get into', async () => {
    const { uid } = vm.engine.isolation.user ?? { uid: -1 };
    const folder = path.join(vm.engine.runRoot, replica.id);
    const { stdout } = await execa('stat', ['-c', '%u %a', folder]);
    expect(stdout).toBe(`${uid} 700`);
    expect(await asItsUser(`ls ${vm.engine.runRoot}`), 'and nothing is told of the others').toMatchObject({
      failed: true,
    });
  });

  it('cannot make its runner read another file for a picture', async () => {
    const { screen, qmp } = replica.machine;
    const file = path.join(vm.engine.runRoot, replica.id, 'screen.ppm');
    const target = path.join(path.dirname(file), 'elsewhere.ppm');
    await symlink(target, file);
    // QEMU itself follows the link.
    await qmp.execute('screendump', { filename: file, format: 'ppm' });
    expect(existsSync(target)).toBe(true);
    await expect(screen.png()).rejects.toMatchObject({ code: 'ELOOP' });
    await rm(file);
    expect((await screen.png()).length).toBeGreaterThan(1_000);
  });
});

describe.skipIf(process.getuid?.() !== 0)('the cgroups of a replica', () => {
  it('hold its process and its limits, are its own, and are gone with it', async () => {
    const [one, other] = await Promise.all([vm.replica('frozen'), vm.replica('frozen')]);
    const folders = await cgroupsOnRecord(one);
    expect(folders.length).toBeGreaterThan(0);
    for (const folder of folders) {
      expect(path.basename(folder)).toBe(one.id);
      expect((await readFile(path.join(folder, 'cgroup.procs'), 'utf8')).trim()).toBe(String(one.machine.pid));
    }
    expect(Number(await readFile(await memoryFile(one), 'utf8'))).toBe(memoryLimit(vm.template.hardware));
    expect(Number(await readFile(await cgroupFile(one, 'pids.max'), 'utf8'))).toBe(128);
    await one.discard();
    expect(folders.filter((folder) => existsSync(folder))).toEqual([]);
    expect((await cgroupsOf(vm.engine.runnerId)).map((folder) => path.basename(folder))).toEqual(
      (await cgroupsOnRecord(other)).map(() => other.id),
    );
    await other.discard();
    expect(await cgroupsOf(vm.engine.runnerId)).toEqual([]);
  });

  it('are not charged for what all clones share', async () => {
    const { memoryPath } = vm.template;
    const forget = (): Promise<unknown> => execa('dd', [`if=${memoryPath}`, 'iflag=nocache', 'count=0']);
    /** Pages of files that a fresh clone is charged for, in bytes. */
    const charged = async (): Promise<number> => {
      const replica = await vm.replica('hot');
      const stat = await readFile(await cgroupFile(replica, 'memory.stat'), 'utf8');
      await replica.discard();
      return Number(field(stat, 'total_cache')[0] ?? field(stat, 'file')[0]);
    };
    // As after a boot of the host.
    await forget();
    const unread = await charged();
    expect(unread).toBeGreaterThan(16 * MIB);
    await forget();
    await ensureTemplate(vm.engine, vm.image, () => undefined, never);
    expect(await charged()).toBeLessThan(unread / 2);
  });

  it('are found to be full where the memory limit is reached: the cause says so, and nobody else is touched', async () => {
    const [one, neighbour] = await Promise.all([vm.replica('leased'), vm.replica('leased')]);
    const file = await memoryFile(one);
    const usage = Number(await readFile(await cgroupFile(one, 'memory.current', 'memory.usage_in_bytes'), 'utf8'));
    const limitMib = Math.ceil(usage / MIB) + 32;
    await writeFile(file, String(limitMib * MIB));
    const told = once(one.lost, 'abort', { signal: AbortSignal.timeout(120_000) });
    await one.guest
      .spawn({ argv: ['sh', '-c', 'head -c 700m /dev/zero | tail'], user: 'root' }, never)
      .catch(() => undefined);
    await told;
    expect(one.cause).toBe(`qemu was killed: its memory limit of ${limitMib} MiB was reached`);
    expect(one.lost.reason).toMatchObject({ name: 'ReplicaLost', byHost: false });
    expect(await guestShell(neighbour, 'echo here')).toBe('here');
    await Promise.all([one.discard(), neighbour.discard()]);
  });
});

describe('a guest that', () => {
  let neighbour: VirtualReplica;
  beforeAll(async () => {
    neighbour = await vm.replica('leased');
  });
  afterAll(() => neighbour?.discard());

  /** Seconds for which it is left to it. */
  const S = 12;
  const threads = async (replica: VirtualReplica): Promise<number> =>
    (await readdir(`/proc/${replica.machine.pid}/task`)).length;

  /** Bytes of the host's disk that a replica's own takes, what it shares with the template's included. */
  const diskBytes = async (replica: VirtualReplica): Promise<number> =>
    (await stat(path.join(vm.area.path, 'runners', vm.engine.runnerId, 'replicas', replica.id, 'disk.raw'))).blocks *
    512;
  /** Bytes of memory that are its alone. */
  const ownBytes = async (replica: VirtualReplica): Promise<number> =>
    Number(field(await ofProcess(replica.machine.pid, 'smaps_rollup'), 'Private_Dirty')[0]) * 1_024;
  /** Told of its own accord the moment its kernel ends a process; how soon memory is used up is the host's speed. */
  const NAMED_MS = 120_000;
  const spent = async (replica: VirtualReplica): Promise<number> => (await cpuTicks(replica.machine.pid)) / 100;

  const EATS = `exec python3 -c 'x = [b"x" * (8 << 20) for _ in range(400)]'`;
  const EATEN = 'the guest ran out of memory: its kernel ended python3';

  it.each<[string, string, 'user' | 'root', (replica: VirtualReplica) => Promise<number>, number, string | null]>([
    ['forks without end', 'b() { b | b & }; b', 'user', spent, 1, null],
    ['fills its disk', 'cat /dev/zero > /fill', 'root', diskBytes, 256 * MIB, null],
    ['spins', 'while :; do :; done', 'user', spent, 1, null],
    ['eats all its memory', EATS, 'root', ownBytes, 256 * MIB, EATEN],
  ])('%s harms only itself', async (_, script, user, harm, much, cause) => {
    const replica = await vm.replica('leased');
    await replica.guest.spawn({ argv: ['bash', '-c', script], user }, never);
    const before = await harm(replica);
    let most = before;
    const answers: string[] = [];
    const startedAt = performance.now();
    const goesOn = (): boolean =>
      performance.now() < startedAt + S * 1_000 ||
      (performance.now() < startedAt + NAMED_MS &&
        (most - before <= much || (cause !== null && !replica.lost.aborted)));
    for (; goesOn(); await sleep(500)) {
      answers.push(await guestShell(neighbour, 'echo here'));
      most = Math.max(most, await harm(replica));
      expect((await neighbour.screenshot(never)).length).toBeGreaterThan(1_000);
      expect(await availableBytes()).toBeGreaterThan(MEMORY_FLOOR_BYTES);
      expect(await vm.area.freeBytes()).toBeGreaterThan(FLOOR_BYTES);
    }
    expect(new Set(answers)).toEqual(new Set(['here']));
    // It did what it was told, and its machine is alive: what ends it is its attempt's own limit, or what was found in it.
    expect(most - before).toBeGreaterThan(much);
    expect(replica.cause).toBe(cause);
    expect(replica.machine.lost.aborted ? replica.machine.lost.reason : null).toEqual(
      cause === null ? null : expect.objectContaining({ name: 'ReplicaLost', found: true }),
    );
    expect(await threads(replica)).toBeLessThan(128);
    await replica.discard();
    expect(neighbour.lost.aborted).toBe(false);
  });
});

async function availableBytes(): Promise<number> {
  return Number(field(await readFile('/proc/meminfo', 'utf8'), 'MemAvailable')[0]) * 1_024;
}

/** Processor time of a process, in hundredths of a second. */
async function cpuTicks(pid: number): Promise<number> {
  const stat = await ofProcess(pid, 'stat');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

describe('where there are no cgroups', () => {
  it('a machine is bounded by a limit on its data, and runs within that', async () => {
    const { isolation } = vm.engine;
    const engine: Engine = { ...vm.engine, isolation: { ...isolation, cgroups: null } };
    const replica = new VirtualReplica(engine, vm.template);
    await using _discarded = replica;
    await replica.prepare();
    await replica.lease(never);
    const bytes = memoryLimit(vm.template.hardware) + 1_024 * MIB;
    expect(await ofProcess(replica.machine.pid, 'limits')).toMatch(
      new RegExp(`^Max data size +${bytes} +${bytes} `, 'm'),
    );
    expect(await cgroupsOf(vm.engine.runnerId)).toEqual([]);
    // Most of the guest's memory, and its disk read in many places at once, which takes threads.
    const reads =
      'for n in $(seq 24); do dd if=/dev/vda of=/dev/null bs=256k count=8 skip=$((n * 100)) iflag=direct & done; wait';
    await guestShell(replica, `python3 -c 'x = b"x" * (600 << 20)'; ${reads}`, 'root');
    expect((await replica.screenshot(never)).length).toBeGreaterThan(1_000);
  });
});
