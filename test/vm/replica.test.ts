import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GuestFileError } from '../../functions/guest.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { TransitionError } from '../../runner/replica/state.ts';
import { type Fixture, guestShell, leftovers, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-replica');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('a replica', () => {
  it('goes from nothing through its gate to an attempt, and leaves nothing', async () => {
    const replica = await vm.replica('frozen');
    expect(replica.phase).toBe('frozen');
    await replica.thaw();
    expect(replica.phase).toBe('hot');
    await replica.lease(never);
    expect(replica.phase).toBe('leased');
    const png = await replica.screenshot(never);
    expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([1280, 720]);
    expect(await guestShell(replica, 'id -un; pwd; echo $DISPLAY')).toBe('user\n/home/user\n:0');
    const { pid } = replica.machine;
    await replica.discard();
    expect(replica.phase).toBe('discarded');
    expect(replica.lost.reason).toMatchObject({ name: 'ReplicaLost', message: 'discarded' });
    expect(existsSync(`/proc/${pid}`)).toBe(false);
    expect(await leftovers(vm.engine)).toEqual([]);
  });

  it('is itself: machine id, boot id, random numbers and clock are its own', async () => {
    const [one, two] = await Promise.all([vm.replica('leased'), vm.replica('leased')]);
    const script = 'cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1';
    const [a, b] = await Promise.all([one, two].map(async (it) => (await guestShell(it, script, 'root')).split('\n')));
    expect(a).toHaveLength(3);
    for (const index of [0, 1, 2]) expect(a?.[index]).not.toBe(b?.[index]);
    expect(a?.[0]).toMatch(/^[0-9a-f]{32}$/);
    for (const replica of [one, two]) {
      const before = Date.now();
      const guest = Number(await guestShell(replica, 'date +%s%3N'));
      expect(guest).toBeGreaterThan(before - 500);
      expect(guest).toBeLessThan(Date.now() + 500);
    }
    await Promise.all([one.discard(), two.discard()]);
  });

  it('keeps what it writes to itself', async () => {
    const one = await vm.replica('leased');
    await guestShell(one, 'echo secret > /home/user/canary; sync');
    await guestShell(one, 'echo secret > /tmp/canary');
    const two = await vm.replica('leased');
    const found = await guestShell(two, 'ls /home/user/canary /tmp/canary 2>/dev/null | wc -l');
    expect(found).toBe('0');
    await Promise.all([one.discard(), two.discard()]);
  });

  it('runs commands and moves files', async () => {
    const replica = await vm.replica('leased');
    const { guest } = replica;
    const failed = await guest.exec({ argv: ['sh', '-c', 'echo out; echo err >&2; exit 3'], timeoutMs: 30_000 }, never);
    expect(failed).toMatchObject({ returncode: 3, timedOut: false, truncated: false });
    expect([failed.stdout.toString(), failed.stderr.toString()]).toEqual(['out\n', 'err\n']);

    const slow = await guest.exec({ argv: ['sleep', '60'], timeoutMs: 1_000 }, never);
    expect(slow.timedOut).toBe(true);
    const echoed = await guest.exec({ argv: ['cat'], stdin: Buffer.from('Grüße'), timeoutMs: 30_000 }, never);
    expect(echoed.stdout.toString()).toBe('Grüße');
    const loud = await guest.exec({ argv: ['head', '-c', '400000', '/dev/zero'], timeoutMs: 60_000 }, never);
    expect(loud.truncated).toBe(true);
    expect(loud.stdout.length).toBe(262_144);

    const data = Buffer.from(Array.from({ length: 1_000_000 }, (_, n) => (n * 7) % 256));
    await guest.writeFile('/home/user/deep/er/file', data, { mode: 0o640 }, never);
    expect(await guestShell(replica, 'stat -c "%U %a %s" /home/user/deep/er/file')).toBe('user 640 1000000');
    expect((await guest.readFile('/home/user/deep/er/file', { maxBytes: 2e6 }, never)).equals(data)).toBe(true);
    const tooBig = guest.readFile('/home/user/deep/er/file', { maxBytes: 999_999 }, never);
    await expect(tooBig).rejects.toMatchObject({ name: 'GuestFileError', code: 'EFBIG' });
    const absent = guest.readFile('/home/user/none', { maxBytes: 1 }, never);
    await expect(absent).rejects.toBeInstanceOf(GuestFileError);
    await expect(absent).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(guest.readFile('/home', { maxBytes: 1 }, never)).rejects.toMatchObject({ code: 'EISDIR' });

    const pid = await guest.spawn({ argv: ['sleep', '1000'] }, never);
    expect(await guestShell(replica, `ps -o comm= -p ${pid}`)).toBe('sleep');
    await replica.discard();
  });

  it('runs each command as its user and no other, whatever runs beside it or could not be started', async () => {
    const replica = await vm.replica('leased');
    const script = 'grep -E "^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb))" /proc/self/status | tr -s "\\t " " "; id -Gn';
    const user = await guestShell(replica, script);
    const ids = '1000 1000 1000 1000';
    const none = '0000000000000000';
    const groups = await guestShell(replica, 'id -G user');
    expect(user.split('\n').map((line) => line.trim())).toEqual([
      ...[`Uid: ${ids}`, `Gid: ${ids}`, expect.stringMatching(/^Groups: 4 5 27 44 /)],
      ...[`CapInh: ${none}`, `CapPrm: ${none}`, `CapEff: ${none}`, `CapAmb: ${none}`],
      expect.stringMatching(/^user adm tty sudo /),
    ]);
    expect(groups.split(' ')[0]).toBe('1000');
    const root = await guestShell(replica, script, 'root');
    expect(root).toMatch(/^Uid: 0 0 0 0\nGid: 0 0 0 0\nGroups: ?\n/);

    const start = (argv: string[], who: 'user' | 'root') =>
      replica.guest.exec({ argv, user: who, timeoutMs: 60_000 }, never).then(
        ({ stdout }) => stdout.toString().trim(),
        (error: Error) => error.name,
      );
    const all = await Promise.all(
      Array.from({ length: 3 }, () => [
        start(['id', '-u'], 'user'),
        start(['/none'], 'user'),
        start(['id', '-u'], 'root'),
      ]).flat(),
    );
    expect(all).toEqual(Array.from({ length: 3 }, () => ['1000', 'HelperError', '0']).flat());
    // What it started as another user, and what that has become since, is still its to end.
    const sudo = ['sh', '-c', 'echo password | sudo -S sleep 600'];
    expect((await replica.guest.exec({ argv: sudo, timeoutMs: 3_000 }, never)).timedOut).toBe(true);
    expect(await guestShell(replica, 'pgrep -x sleep || echo none', 'root')).toBe('none');
    await replica.discard();
  });

  it('shows the picture of its template, and comes to rest', async () => {
    const replica = await vm.replica('leased');
    const picture = await replica.machine.screen.picture();
    expect([picture.width, picture.height]).toEqual([1280, 720]);
    const started = performance.now();
    expect(await replica.settle({ minMs: 300, maxMs: 10_000 }, never)).toBe(true);
    expect(performance.now() - started).toBeGreaterThanOrEqual(299);
    await guestShell(
      replica,
      'nohup sh -c "while :; do xsetroot -solid red; xsetroot -solid blue; done" >/dev/null 2>&1 &',
    );
    await replica.discard();
  });

  it('pays for no page of memory twice', async () => {
    const replica = await vm.replica('frozen');
    // QEMU gives back what it needed for starting when it has been idle for a moment.
    await sleep(1_500);
    const rollup = await readFile(`/proc/${replica.machine.pid}/smaps_rollup`, 'utf8');
    const privateKib = Number(/^Private_Dirty:\s+(\d+)/m.exec(rollup)?.[1]);
    expect(privateKib / 1024).toBeLessThan(20);
    await replica.discard();
  });

  it('is discarded whole in whatever state it is', async () => {
    const early = new VirtualReplica(vm.engine, vm.template);
    const preparing = expect(early.prepare()).rejects.toThrow('discarded');
    await early.discard();
    await preparing;
    const gating = await vm.replica('frozen');
    const thawing = expect(gating.thaw()).rejects.toMatchObject({ name: 'ReplicaLost' });
    await gating.discard();
    await thawing;
    expect(await leftovers(vm.engine)).toEqual([]);
  });

  it('refuses to be handed out twice', async () => {
    const replica = await vm.replica('leased');
    await expect(replica.lease(never)).rejects.toBeInstanceOf(TransitionError);
    expect(replica.phase).toBe('leased');
    await replica.discard();
  });

  it('has its disk in the area, sharing the template’s blocks', async () => {
    const before = await vm.area.freeBytes();
    const replicas = await Promise.all(Array.from({ length: 4 }, () => vm.replica('frozen')));
    const used = before - (await vm.area.freeBytes());
    expect(used).toBeLessThan(64 * 2 ** 20);
    expect(
      existsSync(path.join(vm.area.path, 'runners', 'test-replica', 'replicas', replicas[0]?.id ?? '', 'disk.raw')),
    ).toBe(true);
    await Promise.all(replicas.map((it) => it.discard()));
  });
});
