import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { natsServerConfig } from '../../infra/nats-config.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import type { Bus } from '../../runner/bus/index.ts';
import { holdLease, type Lease, LeaseLost } from '../../runner/bus/lease.ts';
import { pull } from '../../runner/bus/pull.ts';
import { eventually, jobsLeft, keepConsumerState, publishJob, pullOne } from '../support/bus-jobs.ts';
import { type NatsServer, openTestBus, recordingLog, startNats } from '../support/nats.ts';

/** What a lease is worth when the nats-server that gave it has been killed. */
const consumer = 'debian-desktop~night-42';

it('survives a server that is killed and away for less than ack_wait', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 6_000), { ackWaitMs: 6_000 });
  const pulledAtMs = performance.now();
  // The first beat, which the server has not written down yet: the delivery it has, for 2 s.
  await sent(bus, lease, '+WPI');
  await server.kill();
  await server.start();
  await eventually(() => bus.connected);
  await sleep(pulledAtMs + 6_500 - performance.now());
  lease.assertHeld();
  expect(await lease.ack()).toBe('confirmed');
  expect(await jobsLeft(bus)).toBe(0);
});

/** A job held on a server that is to forget that it delivered it. */
interface Forgettable extends AsyncDisposable {
  server: NatsServer;
  bus: Bus;
  lease: Lease;
  lines: () => Record<string, unknown>[];
  /** With the server down: as if it had been killed before it wrote the delivery. */
  forgetDelivery: () => Promise<void>;
}

async function startForgettable(): Promise<Forgettable> {
  const server = await startNats();
  const { log, lines } = recordingLog();
  const bus = await openTestBus(server, { log });
  await publishJob(bus);
  await ensureConsumer(bus, { image: 'debian-desktop', batch: 'night-42' }, 60_000);
  const forgetDelivery = await keepConsumerState(server, consumer);
  const lease = holdLease(bus, await pullOne(bus, 60_000), { ackWaitMs: 60_000 });
  return {
    ...{ server, bus, lease, lines, forgetDelivery },
    async [Symbol.asyncDispose]() {
      lease[Symbol.dispose]();
      await bus[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

it('is lost at once when a server killed right after the delivery is back: it gives the job to the next, and confirms beats all the same', async () => {
  await using held = await startForgettable();
  const { server, bus, lease } = held;
  await server.kill();
  await held.forgetDelivery();
  await server.start();
  await eventually(() => lease.held.aborted);
  expect(lease.held.reason).toBeInstanceOf(LeaseLost);
  expect(lease.held.reason.message).toContain('may have forgotten');
  expect((await bus.nc.request(lease.message.reply, '+WPI')).data).toHaveLength(0);
  expect((await pull(bus, consumer, 1)).messages).toMatchObject([{ deliveries: 1, seq: lease.message.seq }]);
});

it('is lost, too, when that server was silent for long before it was killed', async () => {
  await using held = await startForgettable();
  const { server, bus, lease } = held;
  server.freeze();
  // Until pings are missed.
  await eventually(() => !bus.connected, 20_000);
  await server.kill();
  await held.forgetDelivery();
  await server.start();
  await eventually(() => bus.connected);
  expect(lease.held.reason?.message).toContain('may have forgotten');
});

it('is lost, too, when the new server refused us at first', async () => {
  await using held = await startForgettable();
  const { server, bus, lease } = held;
  const file = path.join(server.folder, 'server.conf');
  const open = await readFile(file, 'utf8');
  const users = [{ user: 'another', password: 'x' }];
  const place = { host: '127.0.0.1', port: server.port, storeDir: path.join(server.folder, 'store') };
  await server.kill();
  await held.forgetDelivery();
  await writeFile(file, natsServerConfig({ ...place, users }));
  await server.start();
  const refusals = () => held.lines().filter(({ msg }) => msg === 'NATS reports an error').length;
  await eventually(() => refusals() > 5, 10_000);
  await server.kill();
  await writeFile(file, open);
  await server.start();
  await eventually(() => bus.connected);
  expect(lease.held.reason?.message).toContain('may have forgotten');
});

it('gives nothing back to a server that may have forgotten who holds the job: the next one would lose it', async () => {
  await using held = await startForgettable();
  const { server, bus, lease } = held;
  await server.kill();
  await eventually(() => !bus.connected);
  const settled = lease.nak();
  await held.forgetDelivery();
  await server.start();
  expect(await settled).toBe('unconfirmed');
});

it('counts from the beat before, and in whole seconds, when a server killed right after a beat is back', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using lease = holdLease(bus, await pullOne(bus, 6_000), { ackWaitMs: 6_000 });
  const pulledAtMs = performance.now();
  await sent(bus, lease, '+WPI');
  await server.kill();
  await server.start();
  await eventually(() => bus.connected);
  server.freeze();
  await new Promise((resolve) => lease.held.addEventListener('abort', resolve));
  const heldMs = performance.now() - pulledAtMs;
  // 5 s from the delivery, not 6 s from the beat.
  expect(heldMs).toBeGreaterThan(4_500);
  expect(heldMs).toBeLessThan(5_800);
});

/** Resolves when the server has seen this settlement of a job, or beat. */
function sent({ nc }: Bus, { message }: Lease, payload: string): Promise<void> {
  return new Promise((resolve) => {
    nc.subscribe(message.reply, {
      callback: (_, { data }) => {
        if (String(Buffer.from(data)) === payload) resolve();
      },
    });
  });
}
