import { setTimeout as sleep } from 'node:timers/promises';
import { Kvm } from '@nats-io/kv';
import { headers } from '@nats-io/transport-node';
import { expect, it } from 'vitest';
import { BatchFlags, readBatch, updateBatch } from '../../runner/bus/batch-flags.ts';
import { putDeadLetter } from '../../runner/bus/dead-letters.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { Events } from '../../runner/bus/events.ts';
import { Heartbeat, readRunners } from '../../runner/bus/heartbeat.ts';
import { openBus } from '../../runner/bus/index.ts';
import { streamDefinitions } from '../../runner/bus/streams.ts';
import type { JobEvent, RunnerStatus } from '../../schemas/index.ts';
import { eventually, pullOne } from '../support/bus-jobs.ts';
import { openTestBus, recordingLog, silent, startNats } from '../support/nats.ts';
import { sampleStatus } from '../support/samples.ts';

const event: JobEvent = {
  schema: 'gymbus.event.v1',
  kind: 'step',
  batch_id: 'night-42',
  job_id: 'rename-0007',
  attempt: '1-abcdefgh',
  runner: 'host-a',
  at: '2026-01-02T03:04:05.678Z',
  data: { step: 1 },
};

it('keeps the original bytes and headers of a dead job, once, with the reason', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const bytes = Buffer.from([0x7b, 0xff, 0x00, 0x0a]);
  const original = headers();
  original.set('Nats-Msg-Id', 'night-42/rename-0007');
  original.set('Nats-Expected-Stream', 'GYMBUS_JOBS');
  original.set('X-Team', 'agents');
  original.set('Gymbus-Supersedes', '12');
  await bus.js.publish('gymbus.jobs.debian-desktop.night-42.rename-0007', bytes, { headers: original });
  const message = await pullOne(bus, 30_000);
  const letter = { class: 'invalid_job', reason: 'not JSON:\n\tunexpected é', attempts: 0 };
  await putDeadLetter(bus, message, letter);
  await putDeadLetter(bus, message, letter);
  // As after the server has forgotten the id.
  await server.kill();
  await server.start();
  await eventually(() => bus.connected);
  await putDeadLetter(bus, message, letter);

  expect((await bus.jsm.streams.info(bus.names.deadStream)).state.messages).toBe(1);
  const stored = await bus.jsm.streams.getMessage(bus.names.deadStream, {
    last_by_subj: 'gymbus.dead.debian-desktop.night-42.rename-0007',
  });
  expect(Buffer.from(stored?.data ?? []).equals(bytes)).toBe(true);
  const kept = Object.fromEntries([...(stored?.header ?? [])].map(([name, [value]]) => [name, value]));
  expect(kept).toEqual({
    'X-Team': 'agents',
    'Gymbus-Supersedes': '12',
    'Nats-Msg-Id': `night-42/rename-0007/dead/${message.seq}`,
    'Gymbus-Reason': 'not JSON: unexpected é',
    'Gymbus-Class': 'invalid_job',
    'Gymbus-Attempts': '0',
  });
});

it('keeps the largest job with the longest reason', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await bus.js.publish('gymbus.jobs.debian-desktop.night-42.big', Buffer.alloc(524_288, 0x20));
  const message = await pullOne(bus, 30_000);
  await putDeadLetter(bus, message, { class: 'invalid_job', reason: 'x'.repeat(1_000_000), attempts: 3 });
  expect((await bus.jsm.streams.info(bus.names.deadStream)).state.messages).toBe(1);
});

it('publishes events without waiting, and drops them while the bus is away', async () => {
  await using server = await startNats();
  const { log, lines } = recordingLog();
  await using bus = await openTestBus(server, { log });
  const events = new Events(bus);
  for (let step = 0; step < 100; step++) events.emit({ ...event, data: { step } });
  await eventually(async () => (await bus.jsm.streams.info(bus.names.eventsStream)).state.messages === 100);
  const stored = await bus.jsm.streams.getMessage(bus.names.eventsStream, { seq: 1 });
  expect(stored).toMatchObject({ subject: 'gymbus.events.night-42.rename-0007.step' });
  expect(stored?.json()).toEqual({ ...event, data: { step: 0 } });

  // A frozen server takes what its socket holds; the rest is dropped, not gathered.
  server.freeze();
  const large = { ...event, data: { note: 'x'.repeat(10_000) } };
  for (let n = 0; n < 1_000; n++) events.emit(large);
  expect(events.dropped).toBeGreaterThan(800);
  server.thaw();
  await sleep(200);
  const { dropped } = events;
  events.emit(event);
  expect(events.dropped).toBe(dropped);

  await server.kill();
  await eventually(() => !bus.connected);
  events.emit(event);
  expect(events.dropped).toBe(dropped + 1);
  expect(lines().filter(({ msg }) => String(msg).startsWith('events dropped'))).toHaveLength(1);
  await server.start();
  await eventually(() => bus.connected);
  const before = (await bus.jsm.streams.info(bus.names.eventsStream)).state.messages;
  events.emit(event);
  await eventually(async () => (await bus.jsm.streams.info(bus.names.eventsStream)).state.messages === before + 1);
});

it('tells of a runner until it stops, and tells watchers when one just dies', async () => {
  await using server = await startNats();
  await using bus = await openBus({ servers: [server.url], name: 'test', log: silent });
  await ensureStreams(bus, streamDefinitions(bus.names, 500));
  const seen: string[] = [];
  const watch = await (await new Kvm(bus.js).open(bus.names.runnersBucket)).watch();
  const watching = (async () => {
    for await (const entry of watch) seen.push(`${entry.key} ${entry.operation}`);
  })();

  let state: RunnerStatus['state'] = 'running';
  const heartbeat = new Heartbeat(bus, 'host-a', () => sampleStatus({ state }), 500);
  const dying = new Heartbeat(bus, 'host-b', () => sampleStatus({ runner: 'host-b' }), 60_000);
  await eventually(async () => (await readRunners(bus)).length === 2);
  state = 'draining';
  heartbeat.beat();
  await eventually(async () => (await readRunners(bus)).some((runner) => runner.state === 'draining'));
  // host-b beats no more: three beats later it is gone, and host-a is not.
  await eventually(() => seen.includes('host-b PURGE'));
  expect((await readRunners(bus)).map(({ runner }) => runner)).toEqual(['host-a']);
  await heartbeat[Symbol.asyncDispose]();
  expect(await readRunners(bus)).toEqual([]);
  await eventually(() => seen.includes('host-a DEL'));
  await dying[Symbol.asyncDispose]();
  watch.stop();
  await watching;
});

it('flags batches by hand or by us, and tells those that run', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await using flags = new BatchFlags(bus);
  expect(await readBatch(bus, 'night-42')).toBeNull();
  expect(await flags.isCancelled('night-42')).toBe(false);
  await Promise.all([
    updateBatch(bus, 'night-42', { size: 8 }),
    updateBatch(bus, 'night-42', { labels: { team: 'agents' } }),
    updateBatch(bus, 'night-42', { paused: true, priority: 3 }),
  ]);
  expect(await readBatch(bus, 'night-42')).toMatchObject({ size: 8, labels: { team: 'agents' }, paused: true });
  await eventually(() => flags.standing('night-42').paused);
  expect(flags.standing('night-42')).toEqual({ paused: true, priority: 3, cancelled: false });

  const told: string[] = [];
  flags.onCancelled('night-42', () => told.push('first'));
  const stop = flags.onCancelled('night-42', () => told.push('second'));
  stop();
  const put = await server.cli(
    'kv',
    'put',
    'GYMBUS_BATCHES',
    'night-42',
    '{"schema":"gymbus.batch.v1","cancelled":true}',
  );
  expect(put.exitCode, put.all).toBe(0);
  // Read from the leader, however far behind memory is.
  expect(await flags.isCancelled('night-42')).toBe(true);
  await eventually(() => told.length > 0);
  flags.onCancelled('night-42', () => told.push('late'));
  expect(told).toEqual(['first', 'late']);
  await server.cli('kv', 'del', 'GYMBUS_BATCHES', 'night-42', '--force');
  await eventually(() => !flags.standing('night-42').cancelled);
  expect(await flags.isCancelled('night-42')).toBe(false);
});

it('goes on watching flags after the server was killed and started again', async () => {
  await using server = await startNats({ syncAlways: true });
  await using bus = await openTestBus(server);
  await using flags = new BatchFlags(bus);
  await updateBatch(bus, 'a', { cancelled: true });
  await eventually(() => flags.standing('a').cancelled);
  await server.kill();
  await server.start();
  await updateBatch(bus, 'b', { cancelled: true });
  await eventually(() => flags.standing('b').cancelled, 15_000);
  expect(flags.standing('a').cancelled).toBe(true);
});
