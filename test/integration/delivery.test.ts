import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attemptSuffix, beginAttempt } from '../../runner/bus/attempts.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { holdLease } from '../../runner/bus/lease.ts';
import { commitOutcome } from '../../runner/bus/outcomes.ts';
import type { JobMessage } from '../../runner/bus/pull.ts';
import { Deliveries } from '../../runner/host/deliveries.ts';
import { Drained } from '../../runner/job/classify.ts';
import { afterCommit } from '../../runner/job/settlement.ts';
import { eventually, keepConsumerState, pullOne } from '../support/bus-jobs.ts';
import { noReservation, PictureDesk, reservationOf, TestRunner } from '../support/delivery.ts';
import { NatsServer, openTestBus, recordingLog } from '../support/nats.ts';
import { openPlace } from '../support/recording.ts';
import { startS3Proxy } from '../support/s3-proxy.ts';
import { sampleAttempt, sampleResult } from '../support/samples.ts';
import { startServers, type TestServers } from '../support/servers.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

let servers: TestServers;
let runner: TestRunner;
beforeAll(async () => {
  servers = await startServers();
  runner = new TestRunner(servers);
});
afterAll(async () => {
  await runner[Symbol.asyncDispose]();
  await servers[Symbol.asyncDispose]();
});

const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex');

/** Ends a wait in a test that nothing else would end. */
const withinMs = <T>(ms: number, work: Promise<T>): Promise<T> =>
  Promise.race([work, sleep(ms).then(() => Promise.reject(new Error(`not over within ${ms} ms`)))]);

describe('a delivery', () => {
  it('plays a job to one outcome, its copy and an empty queue', async () => {
    await runner.publish('plain', {});
    const desk = new PictureDesk();
    const summary = await runner.deliver('plain', { desk });
    expect(summary).toMatchObject({ end: 'committed', result: { status: 'completed', steps: 2 } });
    expect((await runner.outcome('plain'))?.result).toEqual(summary.result);
    expect(await runner.resultJson('plain')).toEqual(summary.result);
    expect(await runner.queued('plain')).toBe(false);
    expect(await runner.attempts('plain')).toMatchObject([{ class: null, ended_at: expect.any(String) }]);
    expect(desk.discards).toBe(1);
  });

  it('of a job that cannot be recorded here costs it no attempt, and the replica is given back', async () => {
    await using place = await openPlace(servers.s3);
    await rm(place.spool.root, { recursive: true });
    await using broken = new TestRunner(servers, place);
    await runner.publish('no-disk', { retry: { max_attempts: 1 } });
    const desk = new PictureDesk();
    expect(await broken.deliver('no-disk', { desk })).toMatchObject({ end: 'returned', failure: { class: 'host' } });
    expect(await runner.attempts('no-disk')).toMatchObject([{ class: 'host', ended_at: expect.any(String) }]);
    expect(desk.discards).toBe(1);
    // Another host has a disk.
    await sleep(1_500);
    expect(await runner.deliver('no-disk')).toMatchObject({ end: 'committed', result: { status: 'completed' } });
  });

  it('beside many others is no leak of listeners', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    const deliveries = new Deliveries(runner.player);
    await Promise.all(
      Array.from({ length: 12 }, async (_, n) => {
        await runner.publish(`many-${n}`, {});
        const message = await pullOne(servers.bus, 30_000, `many-${n}`);
        await deliveries.play({ message, ackWaitMs: 30_000 }, reservationOf(new PictureDesk()));
        expect(await runner.outcome(`many-${n}`)).toMatchObject({ result: { status: 'completed' } });
      }),
    );
    await sleep(0);
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
  });

  it('whose replica cannot be thrown away says so, and ends as it would have', async () => {
    const desk = new PictureDesk();
    desk.discard = () => Promise.reject(new Error('its disk is busy'));
    await runner.publish('stuck', {});
    expect(await runner.deliver('stuck', { desk })).toMatchObject({ end: 'committed' });
    // Attempts used up: claimed, and not played.
    await runner.publish('used-up', { retry: { max_attempts: 1 } });
    const { bus } = servers;
    const begin = ({ data }: JobMessage) =>
      beginAttempt(bus, {
        batch: 'used-up',
        job: 'j',
        sha256: sha256(data),
        fence: 0,
        runner: 'b',
        suffix: attemptSuffix(),
        usedUp: () => false,
      });
    expect(await runner.deliver('used-up', { desk, pulled: begin })).toMatchObject({
      result: { status: 'dead', attempts: 1, failure: { class: 'poison' } },
    });
    await eventually(() => servers.place.logged.filter(({ msg }) => msg === 'replica not discarded').length === 2);
  });
});

describe('a runner told to stop at once', () => {
  it.each([
    ['outcomes', 'GYMBUS_RESULTS'],
    ['batches', 'KV_GYMBUS_BATCHES'],
    ['attempts', 'KV_GYMBUS_ATTEMPTS'],
  ])('gives a job back while the bus has nobody to answer about %s', async (name, stream) => {
    await using proxy = await startTcpProxy(servers.nats.port);
    await using bus = await openTestBus(new NatsServer(proxy.port, '', ''));
    await using stopping = new TestRunner({ ...servers, bus });
    const batch = `stop-${name}`;
    await runner.publish(batch, {});
    const stop = new AbortController();
    let asked = 0;
    const leaderless = async (): Promise<void> => {
      proxy.onUp = (bytes) => {
        const at = bytes.indexOf(`$JS.API.STREAM.MSG.GET.${stream} `);
        if (at < 0) return;
        // As a stream without a leader answers: not at all, and the server says so.
        bytes.write('$JS.NOBODY', at);
        asked++;
      };
    };
    const delivering = stopping.deliver(batch, { stop: stop.signal, pulled: leaderless });
    await eventually(() => asked > 1);
    stop.abort(new Drained('the runner stops'));
    expect(await withinMs(5_000, delivering)).toMatchObject({ end: 'returned', failure: { class: 'host' } });
    // At once, not after ack_wait.
    expect(await runner.deliver(batch)).toMatchObject({ end: 'committed', result: { status: 'completed' } });
  });
});

describe('a stream that somebody removed', () => {
  it.each(['GYMBUS_RESULTS', 'KV_GYMBUS_ATTEMPTS', 'KV_GYMBUS_BATCHES'])(
    '%s is waited for until it is made again, with the job in hand',
    async (stream) => {
      await using own = await startServers();
      const { log, lines } = recordingLog();
      await using bus = await openTestBus(own.nats, { log });
      await using there = new TestRunner({ ...own, bus });
      await there.publish('removed', { retry: { max_attempts: 1 } });
      const remove = () => own.bus.jsm.streams.delete(stream);
      const delivering = there.deliver('removed', { pulled: remove });
      const missing = ({ msg, cause }: Record<string, unknown>): boolean =>
        msg === 'no answer from the bus; asking again' && cause === 'stream not found';
      await eventually(() => lines().some(missing));
      await ensureStreams(own.bus);
      expect(await delivering).toMatchObject({ end: 'committed', result: { status: 'completed', attempts: 1 } });
    },
  );
});

describe('a runner told to stop while the bus is away', () => {
  it('does not wait for it to give a job back: that comes again by itself', async () => {
    await using proxy = await startTcpProxy(servers.nats.port);
    await using bus = await openTestBus(new NatsServer(proxy.port, '', ''));
    await using stopping = new TestRunner({ ...servers, bus });
    const policy = { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 30 }, { type: 'done' }] } };
    await runner.publish('left', { policy });
    const stop = new AbortController();
    const delivering = stopping.deliver('left', { stop: stop.signal });
    await eventually(async () => (await runner.attempts('left')).length === 1);
    proxy.up = 'hold';
    proxy.down = 'hold';
    stop.abort(new Drained('the runner stops'));
    // What it recorded, and that the attempt is over, get 5 s; the job 2 s.
    expect(await withinMs(12_000, delivering)).toMatchObject({ end: 'returned', failure: { class: 'host' } });
    expect(await runner.queued('left')).toBe(true);
  });
});

describe('a runner that lost the bus for longer than its lease', () => {
  it('costs the job no attempt, whoever has it by then', async () => {
    await using proxy = await startTcpProxy(servers.nats.port);
    await using bus = await openTestBus(new NatsServer(proxy.port, '', ''));
    await using away = new TestRunner({ ...servers, bus });
    const policy = { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 2 }, { type: 'done' }] } };
    await runner.publish('outage', { policy, retry: { max_attempts: 1 } });
    const losing = away.deliver('outage', { ackWaitMs: 1_000 });
    await eventually(async () => (await runner.attempts('outage')).length === 1);
    proxy.up = 'hold';
    proxy.down = 'hold';
    await sleep(1_100);
    const playing = runner.deliver('outage', { ackWaitMs: 1_000 });
    // Longer than the runner waits before it goes on to other things.
    expect(await losing).toMatchObject({ end: 'lost' });
    await sleep(1_000);
    proxy.up = 'pass';
    proxy.down = 'pass';
    proxy.flush();
    expect(await playing).toMatchObject({ end: 'committed', result: { status: 'completed', attempts: 2 } });
    expect((await runner.attempts('outage')).map((attempt) => attempt.class)).toEqual(['host', null]);
  });
});

describe('a nats-server killed before it has written down that it delivered a job', () => {
  it('gives it to a second runner; the first stops, and the job is spent no attempt', async () => {
    const { bus, nats } = servers;
    const policy = { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 12 }, { type: 'done' }] } };
    await runner.publish('forgotten', { policy, retry: { max_attempts: 1 } });
    const { name } = await ensureConsumer(bus, { image: 'debian-desktop', batch: 'forgotten' });
    const forgetDelivery = await keepConsumerState(nats, name);
    const first = runner.deliver('forgotten');
    await eventually(async () => (await runner.attempts('forgotten')).length === 1);
    await nats.kill();
    await forgetDelivery();
    await nats.start();
    await eventually(() => bus.connected);
    const second = runner.deliver('forgotten');
    expect(await first).toMatchObject({ end: 'lost' });
    expect(await second).toMatchObject({ end: 'committed', result: { status: 'completed', attempts: 2 } });
    expect((await runner.attempts('forgotten')).map((attempt) => attempt.class)).toEqual(['host', null]);
  });
});

describe('a job that nobody can read', () => {
  it.each([
    ['nested too deep', `{"schema": "gymbus.job.v1", "metadata": ${'['.repeat(50_000)}${']'.repeat(50_000)}}`],
    [
      'with more mistakes than fit into a message',
      JSON.stringify({ evaluator: { postconfig: new Array(200_000).fill(0) } }),
    ],
    [
      'with unknown fields without end',
      JSON.stringify(Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`f${n}`, 1]))),
    ],
  ])('for it is %s, is dead, with an outcome and a letter', async (name, body) => {
    const batch = name.replaceAll(' ', '-');
    await runner.publish(batch, body);
    expect(await runner.deliver(batch)).toMatchObject({
      end: 'committed',
      result: { status: 'dead', failure: { class: 'invalid_job' } },
    });
    expect((await runner.outcome(batch))?.result.failure?.message.length).toBeLessThanOrEqual(2_000);
    expect(await runner.queued(batch)).toBe(false);
    const { bus } = servers;
    const subject = bus.names.deadSubject({ image: 'debian-desktop', batch, job: 'j' });
    const letter = await bus.jsm.streams.getMessage(bus.names.deadStream, { last_by_subj: subject });
    expect(letter?.data.length).toBe(body.length);
  });
});

describe('a holder that is late', () => {
  it('leaves the copy of the newest outcome in S3, not of the one it knew', async () => {
    const { bus } = servers;
    const batch = 'late';
    await runner.publish(batch, {});
    const outcome = (n: number) => sampleResult({ batch, job: 'j', attempt: sampleAttempt(n) }, { score: n / 2 });
    const known = outcome(1);
    const { seq } = await commitOutcome(bus, known, 0);
    const newest = outcome(2);
    await commitOutcome(bus, newest, seq);

    const message = await pullOne(bus, 30_000, batch);
    using lease = holdLease(bus, message, { ackWaitMs: 30_000, deliverLimitMs: 1 });
    await sleep(20);
    const { signal } = new AbortController();
    const delivery = { player: runner.player, lease, hold: lease.held, persist: signal, reservation: noReservation };
    const standing = await afterCommit(
      { ...delivery, sha256: known.job_sha256, startedAt: new Date() },
      { seq, result: known },
    );
    expect(standing).toEqual(newest);
    expect(await runner.resultJson(batch)).toEqual(newest);
  });
});

describe('a set-up that waits for S3', () => {
  it('until its limit passes fails for S3, not for the job', async () => {
    const proxy = await startS3Proxy(servers.s3.port);
    await using place = await openPlace({ ...servers.s3, endpoint: proxy.endpoint });
    await using away = new TestRunner(servers, place);
    await servers.place.store.put('inputs/inputs-away/a.txt', Buffer.from('a'), 'text/plain');
    const setup = [{ type: 'upload_file', parameters: { files: [{ path: '/tmp/a', s3_key: 'a.txt' }] } }];
    await runner.publish('inputs-away', { setup, limits: { setup_s: 1.5 }, retry: { max_attempts: 1 } });
    const summary = await away.deliver('inputs-away', {
      pulled: async () => {
        proxy.rule = () => ({ kind: 'status', status: 503, code: 'SlowDown' });
      },
    });
    expect(summary).toMatchObject({ end: 'returned', failure: { class: 'storage' } });
    expect(await runner.attempts('inputs-away')).toMatchObject([{ class: 'storage' }]);
    await proxy[Symbol.asyncDispose]();
  });
});
