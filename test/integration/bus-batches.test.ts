import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { Batches, type TakenJob } from '../../runner/bus/batches.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { holdLease } from '../../runner/bus/lease.ts';
import { parseReply, pull } from '../../runner/bus/pull.ts';
import { eventually, publishJob, pullOne } from '../support/bus-jobs.ts';
import { NatsServer, openTestBus, recordingLog, startNats } from '../support/nats.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

const images = ['debian-desktop'];
const batchesOf = (taken: TakenJob[]) => taken.map(({ message }) => message.address.batch);

it('pulls what is there without waiting, with the counts of each delivery', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const { name } = await ensureConsumer(bus, { image: 'debian-desktop', batch: 'night-42' });
  const startedAtMs = performance.now();
  expect(await pull(bus, name, 5)).toEqual({ messages: [], end: 'empty' });
  expect(performance.now() - startedAtMs).toBeLessThan(500);
  for (const id of ['a', 'b', 'c']) await publishJob(bus, { job_id: id });

  const two = await pull(bus, name, 2);
  expect(two.end).toBe('full');
  expect(two.messages).toMatchObject([
    { subject: 'gymbus.jobs.debian-desktop.night-42.a', seq: 1, deliveries: 1, pending: 2, consumer: name },
    { address: { image: 'debian-desktop', batch: 'night-42', job: 'b' }, seq: 2, pending: 1 },
  ]);
  expect(two.messages[0]?.headers?.get('Nats-Msg-Id')).toBe('night-42/a');
  expect(Math.abs(Date.now() - (two.messages[0]?.publishedAt.getTime() ?? 0))).toBeLessThan(5_000);
  expect(await pull(bus, name, 2)).toMatchObject({ messages: [{ seq: 3 }], end: 'empty' });
  expect(await pull(bus, 'debian-desktop~none', 2)).toEqual({ messages: [], end: 'no_consumer' });
});

it('gives back at once what arrives after it stopped waiting', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  const { name } = await ensureConsumer(bus, { image: 'debian-desktop', batch: 'night-42' });
  server.freeze();
  expect(await pull(bus, name, 1, { timeoutMs: 200 })).toEqual({ messages: [], end: 'silent' });
  server.thaw();
  await sleep(200);
  expect((await pull(bus, name, 1)).messages).toMatchObject([{ deliveries: 2 }]);
});

it('reads acknowledgement subjects of either form', () => {
  const counts = { consumer: 'c', deliveries: 2, seq: 7, pending: 4, publishedAt: new Date(1_700_000_000_000) };
  expect(parseReply('$JS.ACK.GYMBUS_JOBS.c.2.7.9.1700000000000000000.4')).toEqual(counts);
  expect(parseReply('$JS.ACK.hub.ACC.GYMBUS_JOBS.c.2.7.9.1700000000000000000.4')).toEqual(counts);
  expect(parseReply('$JS.ACK.hub.ACC.GYMBUS_JOBS.c.2.7.9.1700000000000000000.4.x1')).toEqual(counts);
  expect(parseReply('_INBOX.abc')).toBeNull();
  expect(parseReply('$JS.ACK.GYMBUS_JOBS.c.two.7.9.1.4')).toBeNull();
});

it('finds batches that were there before it and is woken by new ones', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus, { batch_id: 'before' });
  await publishJob(bus, { batch_id: 'other', image: 'other-image' });
  using batches = new Batches(bus, { images, scanMs: 30_000 });
  const first = await batches.take('debian-desktop', 4);
  expect(batchesOf(first)).toEqual(['before']);
  expect(first[0]?.ackWaitMs).toBe(30_000);
  expect(batches.known.map(({ batch }) => batch)).toEqual(['before']);

  const woken = batches.wait('debian-desktop').then(() => performance.now());
  await sleep(50);
  const publishedAtMs = performance.now();
  await publishJob(bus, { batch_id: 'after' });
  expect((await woken) - publishedAtMs).toBeLessThan(500);
  expect(batchesOf(await batches.take('debian-desktop', 4))).toEqual(['after']);
});

it('goes round the batches: each gets its share, whoever has more', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (let n = 0; n < 30; n++) await publishJob(bus, { batch_id: 'a-big', job_id: `j${n}` });
  for (const batch_id of ['b-small', 'c-small'])
    for (let n = 0; n < 3; n++) await publishJob(bus, { batch_id, job_id: `j${n}` });
  using batches = new Batches(bus, { images });
  const order: string[] = [];
  for (let n = 0; n < 9; n++) order.push(...batchesOf(await batches.take('debian-desktop', 1)));
  expect(order).toEqual(Array.from({ length: 3 }, () => ['a-big', 'b-small', 'c-small']).flat());
  // What the small ones cannot fill goes to the big one.
  expect(batchesOf(await batches.take('debian-desktop', 8))).toEqual(Array.from({ length: 8 }, () => 'a-big'));
});

it('knows how many jobs wait: what was listed and announced, then what the server says with each answer', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (const batch_id of ['a', 'b']) for (let n = 0; n < 4; n++) await publishJob(bus, { batch_id, job_id: `j${n}` });
  await publishJob(bus, { image: 'other-image' });
  let held = false;
  const standing = (batch: string) => ({ paused: held && batch === 'b', priority: 0 });
  using batches = new Batches(bus, { images, standing });
  expect(batches.waiting('debian-desktop')).toBe(0);
  await batches.take('debian-desktop', 1);
  expect(batches.waiting('debian-desktop')).toBe(7);
  await publishJob(bus, { batch_id: 'a', job_id: 'late' });
  await eventually(() => batches.waiting('debian-desktop') === 8);
  held = true;
  expect(batches.waiting('debian-desktop'), 'a paused one waits for nobody').toBe(4);
  expect(batches.waiting('other-image')).toBe(0);
  held = false;
  expect(await batches.take('debian-desktop', 9)).toHaveLength(8);
  expect(batches.waiting('debian-desktop')).toBe(0);
});

it('shares one request between batches, and leaves paused ones alone', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (const batch_id of ['a', 'b', 'held', 'urgent'])
    for (let n = 0; n < 4; n++) await publishJob(bus, { batch_id, job_id: `j${n}` });
  const standing = (batch: string) => ({ paused: batch === 'held', priority: batch === 'urgent' ? 5 : 0 });
  using batches = new Batches(bus, { images, standing });
  expect(batchesOf(await batches.take('debian-desktop', 10)).sort()).toEqual(
    [...'aaabbb', ...Array(4).fill('urgent')].sort(),
  );
  expect(batchesOf(await batches.take('debian-desktop', 10)).sort()).toEqual(['a', 'b']);
});

it('asks a quiet batch again within a scan: a job given back is announced by nobody', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  using batches = new Batches(bus, { images, scanMs: 200 });
  const [taken] = await batches.take('debian-desktop', 1);
  if (!taken) throw new Error('no job');
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  using lease = holdLease(bus, taken.message, taken);
  await lease.nak();
  const startedAtMs = performance.now();
  const again: TakenJob[] = [];
  while (again.length === 0) {
    await batches.wait('debian-desktop');
    again.push(...(await batches.take('debian-desktop', 1)));
  }
  expect(performance.now() - startedAtMs).toBeLessThan(1_000);
  expect(again[0]?.message.deliveries).toBe(2);
});

it('does not keep a job in hand waiting for a bus that has become slow: nobody beats for it yet', async () => {
  await using server = await startNats();
  await using direct = await openTestBus(server);
  await using proxy = await startTcpProxy(server.port);
  await using bus = await openTestBus(new NatsServer(proxy.port, '', ''));
  const names = ['a', 'b', 'c', 'd'];
  for (const batch of names) await ensureConsumer(direct, { image: 'debian-desktop', batch });
  for (const batch of names) await publishJob(direct, { batch_id: batch });
  // Somebody hears the requests for all batches but the first, and does not answer.
  let unanswered = 0;
  direct.nc.subscribe('$JS.DEA.>', { callback: () => void unanswered++ });
  proxy.onUp = (bytes) => {
    for (const batch of ['b', 'c', 'd']) {
      const at = bytes.indexOf(`$JS.API.CONSUMER.MSG.NEXT.GYMBUS_JOBS.debian-desktop~${batch} `);
      if (at >= 0) bytes.write('$JS.DEA.', at);
    }
  };
  using batches = new Batches(bus, { images });
  expect(batchesOf(await batches.take('debian-desktop', 4))).toEqual(['a']);
  expect(unanswered).toBe(1);
});

it('makes a deleted durable anew, and follows an ack_wait that was edited', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus, { job_id: 'a' });
  using batches = new Batches(bus, { images, scanMs: 50, ackWaitMs: 20_000 });
  expect(await batches.take('debian-desktop', 1)).toMatchObject([{ ackWaitMs: 20_000 }]);
  await bus.jsm.consumers.delete(bus.names.jobsStream, 'debian-desktop~night-42');
  await sleep(100);
  // The job is still in the queue, and the new durable knows nothing of its delivery.
  expect(await batches.take('debian-desktop', 1)).toMatchObject([{ message: { deliveries: 1 } }]);

  await bus.jsm.consumers.update(bus.names.jobsStream, 'debian-desktop~night-42', { ack_wait: 45_000 * 1_000_000 });
  await sleep(1_100);
  await publishJob(bus, { job_id: 'b' });
  expect(await batches.take('debian-desktop', 1)).toMatchObject([{ ackWaitMs: 45_000 }]);
});

it('finds the batches again when the server was killed and started again', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await using publisher = await openTestBus(server);
  using batches = new Batches(bus, { images, scanMs: 100 });
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  await server.kill();
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  await server.start();
  await eventually(() => publisher.connected);
  await publishJob(publisher);
  const taken: TakenJob[] = [];
  await eventually(async () => {
    await batches.wait('debian-desktop');
    taken.push(...(await batches.take('debian-desktop', 1)));
    return taken.length > 0;
  });
  expect(batchesOf(taken)).toEqual(['night-42']);
});

it('sees by the last sequence that an announcement was missed', async () => {
  await using server = await startNats({
    users: [
      { user: 'deaf', password: 'deaf', permissions: { publish: ['>'], subscribe: ['_INBOX.>'] } },
      { user: 'all', password: 'all' },
    ],
  });
  await using publisher = await openTestBus(server, { user: 'all', password: 'all' });
  await using bus = await openTestBus(server, { user: 'deaf', password: 'deaf' });
  using batches = new Batches(bus, { images, scanMs: 100 });
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  await sleep(150);
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  await publishJob(publisher);
  const taken: TakenJob[] = [];
  await eventually(async () => {
    await batches.wait('debian-desktop');
    taken.push(...(await batches.take('debian-desktop', 1)));
    return taken.length > 0;
  });
});

it('delivers jobs whose ids are illegal, from hashed durables', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (const subject of ['debian-desktop.a/b.c', 'no image!.x.y'.replace(' ', '+'), 'debian-desktop.b~c.d']) {
    await bus.js.publish(`gymbus.jobs.${subject}`, '{}');
  }
  using batches = new Batches(bus, { images });
  const taken = await batches.take('debian-desktop', 10);
  expect(taken.map(({ message }) => message.address.batch).sort()).toEqual(['a/b', 'b~c', 'x']);
  expect(taken.every(({ message }) => /^~[0-9a-f]{24}$/.test(message.consumer))).toBe(true);
});

it('says once what is wrong with a consumer it did not make, and takes the other batches', async () => {
  await using server = await startNats();
  const { log, lines } = recordingLog();
  await using bus = await openTestBus(server, { log });
  await publishJob(bus, { batch_id: 'good' });
  await publishJob(bus, { batch_id: 'bad' });
  await publishJob(bus, { batch_id: 'taken' });
  await bus.jsm.consumers.add(bus.names.jobsStream, {
    durable_name: 'debian-desktop~bad',
    filter_subject: 'gymbus.jobs.debian-desktop.bad.>',
    ack_policy: 'explicit',
    max_deliver: 3,
  });
  await bus.jsm.consumers.add(bus.names.jobsStream, {
    durable_name: 'foreign',
    filter_subject: 'gymbus.jobs.debian-desktop.taken.>',
    ack_policy: 'explicit',
  });
  using batches = new Batches(bus, { images, scanMs: 10 });
  expect(batchesOf(await batches.take('debian-desktop', 5))).toEqual(['good']);
  await sleep(30);
  await batches.take('debian-desktop', 5);
  const problems = lines().filter(({ msg }) => msg === 'no consumer for a batch');
  expect(problems.map(({ batch }) => batch).sort()).toEqual(['bad', 'taken']);
  expect(problems.find(({ batch }) => batch === 'bad')?.cause).toContain('max_deliver: found 3, needed -1');
  expect(problems.find(({ batch }) => batch === 'taken')?.cause).toContain('another consumer');
  expect(batches.known.find(({ batch }) => batch === 'bad')?.problem).toContain('max_deliver');
});

it('carries 900 batches', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const publishing = Array.from({ length: 900 }, (_, n) => publishJob(bus, { batch_id: `b${n}`, job_id: 'one' }));
  await Promise.all(publishing);
  using batches = new Batches(bus, { images });
  const startedAtMs = performance.now();
  const taken: TakenJob[] = [];
  while (taken.length < 900) taken.push(...(await batches.take('debian-desktop', 7)));
  const tookMs = performance.now() - startedAtMs;
  expect(new Set(batchesOf(taken)).size).toBe(900);
  console.log(`900 batches, a job each, taken in ${Math.round(tookMs)} ms`);
  expect(tookMs).toBeLessThan(15_000);
  expect((await bus.jsm.streams.info(bus.names.jobsStream)).state.consumer_count).toBe(900);
});

it('holds no job of a paused consumer: nats consumer pause stops one batch', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus);
  await ensureConsumer(bus, { image: 'debian-desktop', batch: 'night-42' });
  await bus.jsm.consumers.pause(bus.names.jobsStream, 'debian-desktop~night-42', new Date(Date.now() + 60_000));
  using batches = new Batches(bus, { images, scanMs: 50 });
  expect(await batches.take('debian-desktop', 1)).toEqual([]);
  await bus.jsm.consumers.resume(bus.names.jobsStream, 'debian-desktop~night-42');
  await sleep(100);
  expect(await batches.take('debian-desktop', 1)).toHaveLength(1);
  await expect(pullOne(bus, 30_000)).rejects.toThrow('no job: empty');
});

it('finds jobs of a stream that was deleted and made anew', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (let n = 0; n < 5; n++) await publishJob(bus, { job_id: `old${n}` });
  using batches = new Batches(bus, { images, scanMs: 50 });
  expect(await batches.take('debian-desktop', 9)).toHaveLength(5);
  await bus.jsm.streams.delete(bus.names.jobsStream);
  await ensureStreams(bus);
  await publishJob(bus, { job_id: 'new' });
  const taken: TakenJob[] = [];
  await eventually(async () => {
    await batches.wait('debian-desktop');
    taken.push(...(await batches.take('debian-desktop', 1)));
    return taken.length > 0;
  });
  expect(taken[0]?.message.address.job).toBe('new');
});
