import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MaybeDelivered } from '../../runner/replica/contract.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-loss');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

/** Does something fatal to a leased replica and waits until it knows. @returns the cause */
async function loseBy(replica: VirtualReplica, fatal: () => unknown): Promise<string> {
  const told = once(replica.lost, 'abort', { signal: AbortSignal.timeout(60_000) });
  await fatal();
  await told;
  expect(replica.phase).toBe('failed');
  expect(replica.lost.reason).toMatchObject({ name: 'ReplicaLost', message: replica.cause });
  return replica.cause ?? '';
}

const inGuest = (replica: VirtualReplica, script: string): Promise<unknown> =>
  replica.guest.spawn({ argv: ['sh', '-c', script], user: 'root' }, never).catch(() => undefined);

describe('a lost machine', () => {
  it('killed: is known at once, with the signal, and everything under way ends', async () => {
    const replica = await vm.replica('leased');
    const picture = await replica.screenshot(never);
    const command = replica.guest.exec({ argv: ['sleep', '600'], timeoutMs: 600_000 }, never);
    const typing = replica.act({ type: 'type', text: 'x'.repeat(2_000) }, never);
    const ends = Promise.allSettled([command, typing]);
    const started = performance.now();
    expect(await loseBy(replica, () => process.kill(replica.machine.pid, 'SIGKILL'))).toBe(
      'qemu exited with signal SIGKILL',
    );
    expect(performance.now() - started).toBeLessThan(5_000);
    const [exec, act] = await ends;
    expect(exec).toMatchObject({ status: 'rejected', reason: { name: 'GuestSilent' } });
    expect(act).toMatchObject({ status: 'rejected' });
    if (act?.status === 'rejected') expect(act.reason).toBeInstanceOf(MaybeDelivered);
    await expect(replica.screenshot(never)).rejects.toMatchObject({ name: 'ReplicaLost' });
    await expect(replica.act({ type: 'move', x: 1, y: 1 }, never)).rejects.toMatchObject({ name: 'ReplicaLost' });

    const { lastPicture, cause } = await replica.diagnostics();
    expect(lastPicture?.equals(picture)).toBe(true);
    expect(cause).toBe('qemu exited with signal SIGKILL');
    await replica.discard();
  });

  it('by a kernel panic: says so, keeps the console and shows the last picture', async () => {
    const replica = await vm.replica('leased');
    const script =
      'echo 7 > /proc/sys/kernel/printk; echo 1 > /proc/sys/kernel/sysrq; sync; echo c > /proc/sysrq-trigger';
    expect(await loseBy(replica, () => inGuest(replica, script))).toBe('guest kernel panicked (GUEST_PANICKED)');
    expect(existsSync(`/proc/${replica.machine.pid}`)).toBe(true);
    const { serialLog, lastPicture } = await replica.diagnostics();
    expect(serialLog.toString()).toMatch(/sysrq|Kernel panic/i);
    expect(lastPicture?.length).toBeGreaterThan(1_000);
    await replica.discard();
    expect(existsSync(`/proc/${replica.machine.pid}`)).toBe(false);
  });

  it('by a reboot: a clone cannot', async () => {
    const replica = await vm.replica('leased');
    expect(await loseBy(replica, () => inGuest(replica, 'echo b > /proc/sysrq-trigger'))).toBe(
      'guest rebooted; a clone cannot',
    );
    await replica.discard();
  });

  it('by its own shutdown', async () => {
    const replica = await vm.replica('leased');
    expect(await loseBy(replica, () => inGuest(replica, 'echo o > /proc/sysrq-trigger'))).toBe(
      'guest shut itself down',
    );
    await replica.discard();
  });

  it('while it was warm: is failed and gone without anybody asking', async () => {
    const replica = await vm.replica('hot');
    const { pid } = replica.machine;
    await loseBy(replica, () => process.kill(pid, 'SIGKILL'));
    await expect(replica.lease(never)).rejects.toMatchObject({ name: 'ReplicaLost' });
    await replica.discard();
  });

  it('diagnostics never throw, whatever is left', async () => {
    const replica = await vm.replica('leased');
    process.kill(replica.machine.pid, 'SIGSTOP');
    const started = performance.now();
    const { lastPicture } = await replica.diagnostics();
    expect(lastPicture).toBeNull();
    expect(performance.now() - started).toBeLessThan(12_000);
    await replica.discard();
    expect((await replica.diagnostics()).cause).toBeNull();
  });
});
