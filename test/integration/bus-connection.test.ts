import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { parseServer } from '../../runner/bus/connection.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { ensureStreams, StreamDiffers } from '../../runner/bus/ensure.ts';
import { BusRefused, BusUnreachable } from '../../runner/bus/errors.ts';
import { openBus } from '../../runner/bus/index.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import { eventually } from '../support/bus-jobs.ts';
import { freePort, openTestBus, recordingLog, silent, startNats } from '../support/nats.ts';
import { startImpostor } from '../support/nats-impostor.ts';

const settings = (url: string) => ({ servers: [url], name: 'test', log: silent });

it.each(['2.9.10', '2.11.15', '1.4.1'])('refuses a nats-server %s with the remedy', async (version) => {
  await using impostor = await startImpostor(version);
  const opening = openBus(settings(impostor.url));
  await expect(opening).rejects.toThrow(BusRefused);
  await expect(opening).rejects.toThrow(`version ${version}; gymbus needs 2.12 or newer`);
  await expect(opening).rejects.toThrow('Upgrade it');
});

it('says that JetStream is off', async () => {
  await using server = await startNats({ config: (port) => `host: 127.0.0.1\nport: ${port}\n` });
  await expect(openBus(settings(server.url))).rejects.toThrow('runs without JetStream; start it with -js');
});

it('says that JetStream is off for the account', async () => {
  const config = (
    port: number,
    storeDir: string,
  ) => `host: 127.0.0.1\nport: ${port}\njetstream { store_dir: "${storeDir}" }
    accounts { WITH { jetstream: enabled, users: [{ user: a, password: a }] }, WITHOUT { users: [{ user: b, password: b }] } }`;
  await using server = await startNats({ config });
  await expect(openBus({ ...settings(server.url), user: 'b', password: 'b' })).rejects.toThrow(
    'not enabled for this account',
  );
  await using bus = await openBus({ ...settings(server.url), user: 'a', password: 'a' });
  expect(bus.connected).toBe(true);
});

it('is refused with wrong credentials and let in with those of the URL, which nobody gets to see', async () => {
  await using server = await startNats({ users: [{ user: 'gym bus', password: 'p@ss:word' }] });
  const { log, lines } = recordingLog();
  await expect(openBus({ ...settings(server.url), user: 'gym bus', password: 'wrong' })).rejects.toThrow(
    'refuses these credentials',
  );
  const url = `nats://gym%20bus:p%40ss%3Aword@127.0.0.1:${server.port}`;
  {
    await using bus = await openBus({ ...settings(url), log });
    await server.kill();
    await eventually(() => !bus.connected);
    await server.start();
    await eventually(() => bus.connected);
  }
  await server.kill();
  const error = await openBus({ ...settings(url), log, patienceMs: 0 }).catch((reason: Error) => reason.message);
  expect(error).toContain('no NATS server answers at 127.0.0.1');
  expect(JSON.stringify([error, lines()])).not.toMatch(/p@ss|p%40ss/);
});

it('waits for a server that is not there, says so, and goes on once it is', async () => {
  const { log, lines } = recordingLog();
  await using server = await startNats();
  await server.kill();
  const opening = openBus({ ...settings(server.url), log });
  await sleep(1_500);
  const waiting = lines().filter(({ msg }) => String(msg).startsWith('no NATS server answers; waiting'));
  // Once now, and then every 5 s.
  expect(waiting).toMatchObject([{ servers: `127.0.0.1:${server.port}` }]);
  await server.start();
  await using bus = await opening;
  expect(bus.connected).toBe(true);
});

it('stops waiting with its signal, or when its patience ends', async () => {
  const url = `nats://127.0.0.1:${await freePort()}`;
  const stop = new AbortController();
  const opening = openBus({ ...settings(url), signal: stop.signal });
  setTimeout(() => stop.abort(new Error('told to stop')), 100);
  await expect(opening).rejects.toThrow('told to stop');
  const impatient = openBus({ ...settings(url), patienceMs: 300 });
  await expect(impatient).rejects.toThrow(BusUnreachable);
  await expect(impatient).rejects.toThrow('set NATS_URL');
});

it('answers at once that the bus is away, and comes back by itself', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  let reconnections = 0;
  const stop = bus.onReconnect(() => {
    reconnections += 1;
  });
  await server.kill();
  await eventually(() => !bus.connected);
  await expect(lastStored(bus, bus.names.resultsStream, 'gymbus.results.a.b')).rejects.toThrow('not connected');
  await server.start();
  await eventually(() => bus.connected);
  expect(reconnections).toBe(1);
  stop();
  expect(await lastStored(bus, bus.names.resultsStream, 'gymbus.results.a.b')).toBeNull();
});

it('reads server addresses as people write them', () => {
  expect(parseServer('127.0.0.1')).toEqual({ address: '127.0.0.1:4222', tls: false });
  expect(parseServer('nats.example.com:5222')).toEqual({ address: 'nats.example.com:5222', tls: false });
  expect(parseServer('tls://nats.example.com')).toEqual({ address: 'nats.example.com:4222', tls: true });
  expect(parseServer('nats://s3cret@h:1')).toEqual({ address: 'h:1', tls: false, token: 's3cret' });
  expect(() => parseServer('http://u:p@h:1')).toThrow('write nats://host:port');
  expect(() => parseServer('http://u:p@h:1')).not.toThrow('u:p');
  expect(() => parseServer('nats://u:p@h:x')).toThrow('//(secret)@h:x');
});

it('makes every stream and bucket, once, however many runners start at once', async () => {
  await using server = await startNats();
  const buses = await Promise.all(Array.from({ length: 8 }, () => openBus(settings(server.url))));
  const [bus] = buses;
  if (!bus) throw new Error('no bus');
  const made = await Promise.all(buses.map((one) => ensureStreams(one)));
  expect(new Set(made.flat()).size).toBe(7);
  expect(await ensureStreams(bus)).toEqual([]);
  const names: string[] = [];
  for await (const { config } of bus.jsm.streams.list()) {
    names.push(config.name);
    expect(config.description).toBeTruthy();
  }
  expect(names.sort()).toEqual([
    'GYMBUS_DEAD',
    'GYMBUS_EVENTS',
    'GYMBUS_JOBS',
    'GYMBUS_RESULTS',
    'KV_GYMBUS_ATTEMPTS',
    'KV_GYMBUS_BATCHES',
    'KV_GYMBUS_RUNNERS',
  ]);
  const { config: jobs } = await bus.jsm.streams.info('GYMBUS_JOBS');
  expect(jobs).toMatchObject({
    subjects: ['gymbus.jobs.*.*.*'],
    retention: 'workqueue',
    max_msgs_per_subject: 1,
    discard_new_per_subject: true,
    duplicate_window: 120_000_000_000,
    max_msg_size: 524_288,
    max_age: 0,
    allow_direct: true,
  });
  const { config: events } = await bus.jsm.streams.info('GYMBUS_EVENTS');
  expect(events.persist_mode).toBe('async');
  const { config: runners } = await bus.jsm.streams.info('KV_GYMBUS_RUNNERS');
  expect(runners).toMatchObject({ max_age: 15_000_000_000, subject_delete_marker_ttl: 60_000_000_000 });
  for (const one of buses) await one[Symbol.asyncDispose]();
});

it('keeps two prefixes apart on one server', async () => {
  await using server = await startNats();
  await using one = await openTestBus(server);
  await using two = await openTestBus(server, { prefix: 'team-b' });
  await two.js.publish(two.names.jobSubject({ image: 'i', batch: 'b', job: 'j' }), 'x');
  expect(two.names.jobsStream).toBe('TEAM_B_JOBS');
  expect((await one.jsm.streams.info('GYMBUS_JOBS')).state.messages).toBe(0);
});

it('refuses streams that are not as needed by field, found and needed value, all at once', async () => {
  await using server = await startNats();
  await using bus = await openBus(settings(server.url));
  await bus.jsm.streams.add({ name: 'GYMBUS_JOBS', subjects: ['gymbus.jobs.>'], max_age: 3_600_000_000_000 });
  await bus.jsm.streams.add({ name: 'GYMBUS_RESULTS', subjects: ['gymbus.results.*.*'], max_msgs_per_subject: 5 });
  await bus.jsm.streams.add({ name: 'ELSE', subjects: ['gymbus.events.>'] });
  const error = await ensureStreams(bus).catch((reason: unknown) => reason);
  if (!(error instanceof StreamDiffers)) throw error;
  expect(error.message).toContain('subjects: found ["gymbus.jobs.>"], needed ["gymbus.jobs.*.*.*"]');
  expect(error.message).toContain('retention: found "limits", needed "workqueue"');
  expect(error.message).toContain('max_age: found 3600 s, needed 0');
  expect(error.message).toContain('republish: found nothing, needed {"src":"gymbus.jobs.>"');
  expect(error.message).toContain('max_msgs_per_subject: found 5, needed 1');
  expect(error.message).toContain('belong to stream ELSE');
  // What an operator may choose is left alone.
  await using second = await startNats();
  await using free = await openBus(settings(second.url));
  await free.jsm.streams.add({
    name: 'GYMBUS_EVENTS',
    subjects: ['gymbus.events.*.*.*'],
    max_age: 60_000_000_000,
    description: 'ours',
  });
  expect(await ensureStreams(free)).toHaveLength(6);
});

it('is pleasant for the nats command', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const body = '{"schema":"gymbus.job.v1"}';
  const subject = 'gymbus.jobs.debian-desktop.night-42.rename-0007';
  const published = await server.cli('pub', '-J', '-H', 'Nats-Msg-Id:night-42/rename-0007', subject, body);
  expect(published.exitCode, published.all).toBe(0);
  const streams = await server.cli('stream', 'ls');
  for (const name of ['GYMBUS_DEAD', 'GYMBUS_EVENTS', 'GYMBUS_JOBS', 'GYMBUS_RESULTS'])
    expect(streams.stdout).toContain(name);
  expect(streams.stdout).toContain('Jobs waiting or running');
  const subjects = await server.cli('stream', 'subjects', bus.names.jobsStream);
  expect(subjects.stdout).toContain(subject);
  const shown = await server.cli('stream', 'get', bus.names.jobsStream, '1');
  expect(shown.stdout).toContain(body);
  const buckets = await server.cli('kv', 'ls', '--names');
  expect(buckets.stdout.split('\n')).toEqual(['GYMBUS_ATTEMPTS', 'GYMBUS_BATCHES', 'GYMBUS_RUNNERS']);
  const twice = await server.cli('pub', '-J', '-H', 'Nats-Msg-Id:another', subject, body);
  expect(twice.exitCode).not.toBe(0);
  expect(twice.all).toContain('maximum messages per subject exceeded');
  await ensureConsumer(bus, { image: 'debian-desktop', batch: 'night-42' });
  const report = await server.cli('consumer', 'report', bus.names.jobsStream);
  expect(report.stdout).toContain('debian-desktop~night-42');
  const paused = await server.cli(
    'consumer',
    'pause',
    bus.names.jobsStream,
    'debian-desktop~night-42',
    '1h',
    '--force',
  );
  expect(paused.exitCode, paused.all).toBe(0);
});
