import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { darkness, same } from '../../runner/qemu/picture.ts';
import { identityHolder } from '../../runner/replica/ownership.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import {
  type GateCheck,
  GateFailed,
  type GuestIdentity,
  passGate,
  proveCommand,
} from '../../runner/replica/restore-gate.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

const MACHINE_ID = '0123456789abcdef0123456789abcdef';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-gate');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

/** Gates a guest that runs and in which something was planted. @returns the check it failed and why, null when it passed */
async function gate(
  replica: VirtualReplica,
  holderOf: GuestIdentity['holderOf'] = async () => null,
): Promise<[GateCheck, string] | null> {
  try {
    await passGate(replica.machine, vm.template, { machineId: MACHINE_ID, holderOf }, never);
    return null;
  } catch (error) {
    if (!(error instanceof GateFailed)) throw error;
    return [error.check, error.message];
  }
}

/** A guest that runs, but was never told who it is: the state in which the gate meets it. */
async function awake(): Promise<VirtualReplica> {
  const replica = await vm.replica('frozen');
  await replica.machine.run();
  await replica.machine.helper.ping(60_000);
  return replica;
}

/** Covers the screen from a row on, and waits until it is seen. @param colour as X has it @param seen told how dark the screen is */
async function cover(
  replica: VirtualReplica,
  top: number,
  colour: number,
  seen: (darkness: number) => boolean,
): Promise<void> {
  const script = `
from Xlib import X, display
import time
d = display.Display(':0')
w = d.screen().root.create_window(0, ${top}, 1280, ${720 - top}, 0, X.CopyFromParent, override_redirect=1, background_pixel=${colour})
w.map()
d.sync()
time.sleep(600)
`;
  await replica.guest.spawn({ argv: ['python3', '-c', script] }, never);
  await expect.poll(async () => seen(darkness(await replica.machine.screen.picture())), { timeout: 60_000 }).toBe(true);
}

/** Starts a Python program in the guest that undoes what the gate does the moment it is done, and costs nothing until then. */
async function plant(replica: VirtualReplica, script: string): Promise<void> {
  const head = `
import ctypes, os, struct, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
libc = ctypes.CDLL(None)
`;
  const argv = ['python3', '-c', `${head}${script}`];
  await replica.guest.spawn({ argv, user: 'root' }, never);
}

describe('the restore gate', () => {
  it('passes a healthy guest, which it leaves as the template was', async () => {
    const replica = await awake();
    expect(await gate(replica)).toBeNull();
    expect(await guestShell(replica, 'cat /etc/machine-id')).toBe(MACHINE_ID);
    const volatile = vm.image.manifest.volatile_regions;
    expect(same(await replica.machine.screen.picture(), vm.template.golden, volatile)).toBe(true);
    await replica.discard();
  });

  it('fails a black picture', async () => {
    const replica = await awake();
    await cover(replica, 0, 0, (dark) => dark > 0.99);
    expect(await gate(replica)).toEqual(['black', 'restore gate, black: the screen is black']);
    await replica.discard();
  });

  it('fails a picture that is only half drawn', async () => {
    const replica = await awake();
    // The desktop is black: what is not drawn yet would not be.
    await cover(replica, 360, 0xffffff, (dark) => dark < 0.55);
    const failure = await gate(replica);
    expect(failure?.[0]).toBe('half-drawn');
    expect(failure?.[1]).toMatch(/(4|5)\d\.\d % of the picture differ from the template's/);
    await replica.discard();
  });

  it('fails a picture that is frozen', async () => {
    const replica = await awake();
    await guestShell(replica, 'pkill -STOP Xorg', 'root');
    const message = 'restore gate, frozen: the picture does not follow the pointer within 15000 ms';
    expect(await gate(replica)).toEqual(['frozen', message]);
    await replica.discard();
  });

  it('fails a clock that does not keep the time it was given', async () => {
    const replica = await awake();
    // A timer that the kernel cancels whenever the clock is set.
    const script = `
timer = libc.timerfd_create(0, 0)
while True:
    time.clock_settime(time.CLOCK_REALTIME, 1.0e9)
    libc.timerfd_settime(timer, 3, struct.pack('4q', 0, 0, 1 << 40, 0), None)
    try: os.read(timer, 8)
    except OSError: pass
`;
    await plant(replica, script);
    await expect
      .poll(async () => Number(await guestShell(replica, 'date +%s')), { timeout: 60_000 })
      .toBeLessThan(1.1e9);
    const failure = await gate(replica);
    expect(failure?.[0]).toBe('clock');
    expect(failure?.[1]).toMatch(/clock: -\d{9,} ms off after it was set, more than 500/);
    await replica.discard();
  });

  it('fails a machine id that another replica has', async () => {
    const [holder, replica] = await Promise.all([vm.replica('leased'), awake()]);
    const taken = await guestShell(holder, 'cat /etc/machine-id');
    const script = `
watch = libc.inotify_init()
while True:
    with open('/etc/id', 'w') as f: f.write('${taken}\\n')
    os.rename('/etc/id', '/etc/machine-id')
    libc.inotify_add_watch(watch, b'/etc/machine-id', 8)
    os.read(watch, 4096)
`;
    await plant(replica, script);
    await expect.poll(() => guestShell(replica, 'cat /etc/machine-id'), { timeout: 60_000 }).toBe(taken);
    const failure = await gate(replica, (id) => identityHolder(vm.area.path, id));
    expect(failure).toEqual([
      'identity',
      `restore gate, identity: machine id is ${taken} (that of ${holder.id}) although it was set to ${MACHINE_ID}`,
    ]);
    await Promise.all([holder.discard(), replica.discard()]);
  });

  it('gives no two replicas of a host one machine id', async () => {
    const holder = await vm.replica('frozen', MACHINE_ID);
    await expect(vm.replica('frozen', MACHINE_ID)).rejects.toThrow(`machine id ${MACHINE_ID} belongs to ${holder.id}`);
    await holder.discard();
  });

  it('fails a guest whose kernel did not notice its cloning', async () => {
    const replica = await awake();
    // The helper forgets what the kernel said, and it says it only once.
    await replica.machine.helper.call('arm', {}, z.unknown(), { deadlineMs: 30_000 });
    const failure = await gate(replica);
    expect(failure?.[0]).toBe('entropy');
    expect(failure?.[1]).toContain('the kernel did not reseed its random numbers');
    await replica.discard();
  });

  it('fails a guest whose helper is dead', async () => {
    const replica = await awake();
    await replica.guest.spawn({ argv: ['sh', '-c', 'sleep 1; pkill -STOP -f [g]ymbus-helper'], user: 'root' }, never);
    const ping = (): Promise<string> =>
      replica.machine.helper.ping(500).then(
        () => 'up',
        () => 'silent',
      );
    await expect.poll(ping, { timeout: 30_000 }).toBe('silent');
    expect((await gate(replica))?.[0]).toBe('helper');
    await replica.discard();
  });

  it('fails a guest that passes all this and can run no command, before it becomes hot', async () => {
    const replica = await awake();
    await guestShell(replica, 'ln -sf /bin/false /bin/true', 'root');
    const failure = await proveCommand(replica.guest, never).catch((error: unknown) => error);
    expect(failure).toMatchObject({ name: 'GateFailed', check: 'command' });
    expect((failure as Error).message).toBe('restore gate, command: "true" ended with 1');
    await guestShell(replica, 'rm /bin/true', 'root');
    await expect(proveCommand(replica.guest, never)).rejects.toMatchObject({ check: 'helper' });
    await replica.discard();
  });

  it('ends when the machine dies under it, and says how that died', async () => {
    const replica = await vm.replica('frozen');
    process.kill(replica.machine.pid, 'SIGSTOP');
    setTimeout(() => process.kill(replica.machine.pid, 'SIGKILL'), 1_000);
    await expect(replica.thaw()).rejects.toThrow('qemu exited with signal SIGKILL');
    expect(replica.phase).toBe('failed');
    expect(replica.cause).toBe('qemu exited with signal SIGKILL');
    await replica.discard();
  });
});
