import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { commitOutcome } from '../../runner/bus/outcomes.ts';
import { type JobToPublish, publishJob, publishJobs } from '../../runner/bus/publisher.ts';
import { eventually, jobsLeft } from '../support/bus-jobs.ts';
import { openTestBus, startNats } from '../support/nats.ts';
import { sampleJob, sampleResult } from '../support/samples.ts';

const address = { image: 'debian-desktop', batch: 'night-42', job: 'rename-0007' };
const jobOf = (over: Partial<JobToPublish> = {}): JobToPublish => ({
  address,
  data: Buffer.from(JSON.stringify(sampleJob())),
  ...over,
});

it('queues a job once, whoever publishes it again and with whatever body', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  expect(await publishJob(bus, jobOf())).toEqual({ kind: 'queued', seq: 1, republished: null });
  expect(await publishJob(bus, jobOf())).toEqual({ kind: 'already_queued' });
  expect(await publishJob(bus, jobOf({ data: Buffer.from('{}') }))).toEqual({ kind: 'already_queued' });
  expect(await jobsLeft(bus)).toBe(1);
});

it('refuses a second one outside the window of ids as well, also after a restart', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus, jobOf());
  const again = await bus.js
    .publish(bus.names.jobSubject(address), '{}', { msgID: 'another' })
    .catch((error) => error.code);
  expect(again).toBe(10077);
  const before = bus.connection;
  await server.kill();
  await server.start();
  await eventually(() => bus.connection !== before && bus.connected);
  expect(await publishJob(bus, jobOf())).toEqual({ kind: 'already_queued' });
  expect(await jobsLeft(bus)).toBe(1);
});

it('publishes anew under an id of its own when the known one is gone from the queue without an outcome', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus, jobOf());
  await bus.jsm.streams.purge(bus.names.jobsStream);
  expect(await publishJob(bus, jobOf())).toMatchObject({ kind: 'queued', republished: 1 });
  const stored = await bus.jsm.streams.getMessage(bus.names.jobsStream, {
    last_by_subj: bus.names.jobSubject(address),
  });
  expect(stored?.header.get('Nats-Msg-Id')).toBe('night-42/rename-0007/1');
  await bus.jsm.streams.purge(bus.names.jobsStream);
  expect(await publishJob(bus, jobOf())).toMatchObject({ kind: 'queued', republished: 2 });
});

it('says that a job is done, and queues a retry that supersedes its outcome', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await publishJob(bus, jobOf());
  const outcome = await commitOutcome(
    bus,
    sampleResult({ batch: address.batch, job: address.job, attempt: '1-abcdefgh' }),
    0,
  );
  await bus.jsm.streams.purge(bus.names.jobsStream);
  expect(await publishJob(bus, jobOf())).toEqual({ kind: 'already_done', seq: outcome.seq });
  expect(await publishJob(bus, jobOf({ supersedes: outcome.seq }))).toMatchObject({ kind: 'queued', republished: 1 });
  const stored = await bus.jsm.streams.getMessage(bus.names.jobsStream, {
    last_by_subj: bus.names.jobSubject(address),
  });
  expect(stored?.header.get('Gymbus-Supersedes')).toBe(String(outcome.seq));
});

it('says how large a job is that is too large, on either side of the limit', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const big = await publishJob(bus, jobOf({ data: Buffer.alloc(2 * 1024 * 1024, 32) }));
  expect(big).toMatchObject({ kind: 'too_large', limitBytes: 524_288, message: expect.stringContaining('2,097,') });
  // The server agrees to the byte with what is counted here.
  const size = async (bytes: number) => {
    const job = `rename-${String(bytes).padStart(7, '0')}`;
    return (await publishJob(bus, jobOf({ address: { ...address, job }, data: Buffer.alloc(bytes, 32) }))).kind;
  };
  let [fits, fails] = [520_000, 524_288];
  while (fails - fits > 1) {
    const middle = Math.floor((fits + fails) / 2);
    const kind = await size(middle);
    if (kind === 'queued') fits = middle;
    else fails = middle;
    expect(['queued', 'too_large']).toContain(kind);
  }
  const raw = (bytes: number) =>
    bus.js.publish(bus.names.jobSubject({ ...address, job: 'raw' }), Buffer.alloc(bytes, 32), {
      msgID: 'night-42/rename-a-raw-1',
      expect: { streamName: bus.names.jobsStream },
    });
  await expect(raw(fails)).rejects.toMatchObject({ code: 10054 });
  expect(await raw(fits)).toMatchObject({ duplicate: false });
});

it('refuses ids that are no subject tokens, at once', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  for (const job of ['a.b', 'a/b', '', 'x'.repeat(65)]) {
    const refused = await publishJob(bus, jobOf({ address: { ...address, job } }));
    expect(refused).toMatchObject({ kind: 'refused', message: expect.stringContaining('no legal id') });
  }
});

it('goes on over an outage without queueing anything twice', async () => {
  await using server = await startNats({ syncAlways: true });
  await using bus = await openTestBus(server);
  const jobs = Array.from({ length: 2_000 }, (_, n) => jobOf({ address: { ...address, job: `j${n}` } }));
  const kinds: string[] = [];
  const publishing = (async () => {
    for await (const { published } of publishJobs(bus, jobs, { inFlight: 100 })) kinds.push(published.kind);
  })();
  await sleep(150);
  await server.kill();
  expect(kinds.length).toBeLessThan(2_000);
  await server.start();
  await publishing;
  expect(new Set(kinds)).toEqual(new Set(['queued']));
  expect(await jobsLeft(bus)).toBe(2_000);
});

it('says what may have become of a job when the bus stays away, and stops with its signal', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await server.kill();
  const refused = await publishJob(bus, jobOf(), { patienceMs: 500 });
  expect(refused).toMatchObject({ kind: 'refused', message: expect.stringContaining('may or may not be queued') });
  const stop = new AbortController();
  const publishing = publishJobs(bus, [jobOf()], { signal: stop.signal }).next();
  stop.abort(new Error('stopped'));
  await expect(publishing).rejects.toThrow('stopped');
});

it('says that streams are missing', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await bus.jsm.streams.delete(bus.names.jobsStream);
  const refused = await publishJob(bus, jobOf(), { patienceMs: 300 });
  expect(refused).toMatchObject({ kind: 'refused', message: expect.stringContaining('gymbus streams ensure') });
});

it('publishes thousands in order, many at once', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const jobs = Array.from({ length: 4_000 }, (_, n) => jobOf({ address: { ...address, job: `j${n}` } }));
  const startedAtMs = performance.now();
  const queued: string[] = [];
  for await (const { job, published } of publishJobs(bus, jobs)) {
    if (published.kind === 'queued') queued.push(job.address.job);
  }
  console.log(`${Math.round(4_000 / ((performance.now() - startedAtMs) / 1_000))} publishes/s with 500 in flight`);
  expect(queued).toEqual(jobs.map((job) => job.address.job));
});
