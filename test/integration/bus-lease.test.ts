import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { expect, it } from 'vitest';
import { holdLease, LeaseLost } from '../../runner/bus/lease.ts';
import { pull } from '../../runner/bus/pull.ts';
import { eventually, jobsLeft, publishJob, pullOne } from '../support/bus-jobs.ts';
import { NatsServer, openTestBus, startNats } from '../support/nats.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

const consumer = 'debian-desktop~night-42';

it('keeps a job by beats for longer than ack_wait, and removes it with a confirmed ack', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 600), { ackWaitMs: 600 });
  await sleep(1_500);
  lease.assertHeld();
  expect((await pull(bus, consumer, 1)).messages).toEqual([]);
  expect(await lease.ack()).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
});

it('beats no more once disposed: the job comes again', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  holdLease(bus, await pullOne(bus, 600), { ackWaitMs: 600 })[Symbol.dispose]();
  await sleep(700);
  expect((await pull(bus, consumer, 1)).messages).toMatchObject([{ deliveries: 2 }]);
});

it('is lost when the server is silent for ack_wait, never later than the server counts', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 900), { ackWaitMs: 900 });
  await sleep(1_000);
  server.freeze();
  const frozenAtMs = performance.now();
  await new Promise((resolve) => lease.held.addEventListener('abort', resolve));
  const tookMs = performance.now() - frozenAtMs;
  expect(lease.held.reason).toBeInstanceOf(LeaseLost);
  // The last confirmed beat was at most a third of ack_wait before the freeze.
  expect(tookMs).toBeGreaterThan(500);
  expect(tookMs).toBeLessThan(1_000);
  expect(() => lease.assertHeld()).toThrow(LeaseLost);
  server.thaw();
  // Not sent: it would hit the job under its next holder.
  expect(await lease.nak()).toBe('lost');
});

it('forgets nothing when only the connection was lost', async () => {
  await using server = await startNats();
  await using network = await startTcpProxy(server.port);
  await using bus = await openTestBus(new NatsServer(network.port, '', ''));
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 3_000), { ackWaitMs: 3_000 });
  network.cut();
  await eventually(() => !bus.connected);
  await eventually(() => bus.connected);
  await sleep(3_000);
  lease.assertHeld();
  expect(await lease.ack()).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
});

it('acks again with a raw request when the answer is lost', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000 });
  server.freeze();
  const acking = lease.ack();
  expect(lease.nak()).toBe(acking);
  await sleep(5_500);
  server.thaw();
  expect(await acking).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
});

it('says unconfirmed when nobody answers the ack for as long as it may take', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000, settleMs: 400 });
  server.freeze();
  expect(await lease.ack()).toBe('unconfirmed');
});

it('gives a job back, at once or later', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  const first = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000 });
  expect(await first.nak()).toBe('confirmed');
  const second = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000 });
  expect(second.message.deliveries).toBe(2);
  expect(await second.nak(500)).toBe('confirmed');
  expect((await pull(bus, consumer, 1)).messages).toEqual([]);
  await sleep(600);
  expect((await pull(bus, consumer, 1)).messages).toMatchObject([{ deliveries: 3 }]);
});

it('settles once: the first wins', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000 });
  await Promise.all([lease.nak(), lease.ack(), lease.term('no')]);
  expect(await jobsLeft(bus)).toBe(1);
});

it('terminates with a reason that the advisory carries', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const reasons: string[] = [];
  bus.nc.subscribe('$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>', {
    callback: (_, message) => void reasons.push(message.json<{ reason: string }>().reason),
  });
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 30_000), { ackWaitMs: 30_000 });
  expect(await lease.term('not\nJSON')).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
  await eventually(() => reasons.length > 0);
  expect(reasons).toEqual(['not JSON']);
});

it('is told that its consumer is gone, and the job comes again from a new one', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 600), { ackWaitMs: 600 });
  await bus.jsm.consumers.delete(bus.names.jobsStream, consumer);
  await new Promise((resolve) => lease.held.addEventListener('abort', resolve));
  expect(await lease.ack()).toBe('gone');
  expect(await pullOne(bus, 600)).toMatchObject({ deliveries: 1 });
});

it('shows why an ack proves nothing: a late one removes the job under its next holder', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using old = holdLease(bus, await pullOne(bus, 300), { ackWaitMs: 300 });
  server.freeze();
  await new Promise((resolve) => old.held.addEventListener('abort', resolve));
  server.thaw();
  await sleep(400);
  using next = holdLease(bus, await pullOne(bus, 300), { ackWaitMs: 300 });
  expect(next.message.deliveries).toBeGreaterThan(1);
  // Sent all the same: it is only ever called when an outcome stands, and then the job is over for everybody.
  expect(await old.ack()).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
  expect(await next.ack()).toBe('confirmed');
});

it('ends a delivery that takes too long, beats or not', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 600), { ackWaitMs: 600, deliverLimitMs: 1_200 });
  await sleep(1_000);
  lease.assertHeld();
  await sleep(300);
  expect(lease.held.reason).toMatchObject({
    name: 'LeaseLost',
    message: expect.stringContaining('the most a delivery may take'),
  });
});

it('knows after a freeze of its own process, before any timer, that the job is lost', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  const script = path.resolve(import.meta.dirname, '../support/frozen-holder.ts');
  const tsx = path.resolve(import.meta.dirname, '../../node_modules/.bin/tsx');
  await using holder = startHolder(tsx, [script, server.url]);
  const lines = holder.child.iterable()[Symbol.asyncIterator]();
  expect((await lines.next()).value).toBe('held');
  const pid = Number((await lines.next()).value);
  process.kill(pid, 'SIGSTOP');
  await sleep(1_000);
  process.kill(pid, 'SIGCONT');
  // It spins on assertHeld without ever yielding to its timers.
  expect((await lines.next()).value).toBe('LeaseLost');
});

function startHolder(command: string, args: string[]) {
  const child = execa(command, args, { buffer: false, reject: false, timeout: 30_000 });
  return {
    child,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await child;
    },
  };
}
