import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { chooseMachineUser, forAccelerator, MachineUserUnavailable } from '../../runner/qemu/machine-user.ts';

const root = process.getuid?.() === 0;
const choose = (wanted?: string): ReturnType<typeof chooseMachineUser> => chooseMachineUser(wanted, { make: true });

describe.skipIf(!root)('QEMU’s user, of a runner that is root,', () => {
  it('is a system user of its own, made where it is missing, with no way to log in', async () => {
    const { user, description } = await choose();
    const entry = execFileSync('getent', ['passwd', 'gymbus-qemu'], { encoding: 'utf8' }).trim().split(':');
    expect(user).toEqual({ name: 'gymbus-qemu', uid: Number(entry[2]), gid: Number(entry[3]), groups: [] });
    expect(entry.slice(5)).toEqual(['/nonexistent', '/usr/sbin/nologin']);
    expect(description).toBe(`QEMU runs as gymbus-qemu (user ${user?.uid}, group ${user?.gid})`);
    expect(await choose()).toEqual({ user, description });
  });

  it('is the one that is named, by name or number, in the host’s list or not', async () => {
    const nobody = { uid: 65_534, gid: 65_534, groups: [] };
    expect((await choose('nobody')).user).toEqual({ name: 'nobody', ...nobody });
    expect((await choose('65534')).user).toEqual({ name: 'nobody', ...nobody });
    expect((await choose('64123')).user).toEqual({ name: '64123', uid: 64_123, gid: 64_123, groups: [] });
  });

  it('is root only where that is said in so many words', async () => {
    const own = { user: null, description: 'QEMU runs as root (GYMBUS_QEMU_USER=root)' };
    expect(await choose('root')).toEqual(own);
    expect(await choose('0')).toEqual(own);
    await expect(choose('00')).rejects.toBeInstanceOf(MachineUserUnavailable);
  });

  it('is not another one instead of one that is not there', async () => {
    await expect(choose('no-such-user')).rejects.toBeInstanceOf(MachineUserUnavailable);
    await expect(choose('no-such-user')).rejects.toThrow(
      /^GYMBUS_QEMU_USER=no-such-user: there is no such user; make it \(useradd --system .* no-such-user\), or name another$/,
    );
  });

  it('gets into KVM by a group, and without KVM into none', async () => {
    const { user } = await choose('nobody');
    expect(await forAccelerator(user, 'tcg')).toEqual(user);
    expect((await forAccelerator(user, 'kvm'))?.groups).not.toContain(0);
    expect(await forAccelerator(null, 'kvm')).toBeNull();
  });
});

/** In a process that has given up being root. */
describe.skipIf(!root)('QEMU’s user, of a runner that is not root,', () => {
  const module = new URL('../../runner/qemu/machine-user.ts', import.meta.url).href;
  const ask = (wanted: (string | undefined)[]): unknown[] => {
    const code = `process.setgid(65534); process.setuid(65534);
      const { chooseMachineUser } = await import(${JSON.stringify(module)});
      const choose = (wanted) => chooseMachineUser(wanted ?? undefined, { make: true }).catch((error) => error.message);
      console.log(JSON.stringify(await Promise.all(${JSON.stringify(wanted)}.map(choose))));`;
    const node = ['--import', 'tsx', '--input-type=module', '-e', code];
    return JSON.parse(
      execFileSync(process.execPath, node, { encoding: 'utf8', env: { ...process.env, TMPDIR: '/tmp' } }),
    );
  };

  it('is the runner’s own, and nobody else’s', () => {
    const own = { user: null, description: "QEMU runs as the runner's own user (65534), which is not root" };
    expect(ask([undefined, 'nobody', 'root'])).toEqual([
      own,
      own,
      'GYMBUS_QEMU_USER=root: only root may run QEMU as another user, and this runner is user 65534; unset it',
    ]);
  });
});
