import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Batches } from '../../runner/bus/batches.ts';
import { Deliveries } from '../../runner/host/deliveries.ts';
import { pullLoop } from '../../runner/host/pull-loop.ts';
import { readManifest } from '../../runner/storage/reader.ts';
import { objectKeys } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { DeskPool, TestRunner } from '../support/delivery.ts';
import { NatsServer, openTestBus } from '../support/nats.ts';
import { openPlace } from '../support/recording.ts';
import { startS3Proxy } from '../support/s3-proxy.ts';
import { startServers, type TestServers } from '../support/servers.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';

/** Short, so that jobs are often played by two at once. */
const ACK_WAIT_MS = 1_000;
const JOBS = 24;
const STORM_MS = 8_000;

let servers: TestServers;
beforeAll(async () => {
  servers = await startServers();
});
afterAll(() => servers[Symbol.asyncDispose]());

const chance = (most: number): number => Math.floor(Math.random() * most);

/** A runner behind a network that breaks, holds back and comes again, and before an S3 that does the same. */
async function openStormy(name: string, calm: AbortSignal) {
  const nats = await startTcpProxy(servers.nats.port);
  const bus = await openTestBus(new NatsServer(nats.port, '', ''));
  const s3 = await startS3Proxy(servers.s3.port);
  const place = await openPlace({ ...servers.s3, endpoint: s3.endpoint });
  const runner = new TestRunner({ ...servers, bus }, place, { runner: name });
  const deliveries = new Deliveries(runner.player);
  const pool = new DeskPool(4);
  const batches = new Batches(bus, { images: ['debian-desktop'], scanMs: 200, ackWaitMs: ACK_WAIT_MS });
  const pulling = new AbortController();
  const loop = pullLoop('debian-desktop', {
    ...{ batches, pool, signal: pulling.signal },
    look: async () => ({ reason: null, diskFreeBytes: 0 }),
    onLook: () => undefined,
    play: (taken, reservation) => deliveries.play(taken, reservation),
  });
  const faults: (() => void | Promise<void>)[] = [
    () => nats.cut(),
    async () => {
      nats.up = 'hold';
      await sleep(500 + chance(1_500));
      nats.up = 'pass';
      nats.flush();
    },
    async () => {
      nats.down = 'hold';
      await sleep(500 + chance(1_500));
      nats.down = 'pass';
      nats.flush();
    },
    async () => {
      s3.rule = () => (chance(2) ? { kind: 'status', status: 503, code: 'SlowDown' } : { kind: 'lose_answer' });
      await sleep(300 + chance(700));
      s3.rule = () => undefined;
    },
    () => void pool.kill(),
  ];
  const storm = (async () => {
    while (!calm.aborted) {
      await sleep(100 + chance(400));
      await faults[chance(faults.length)]?.();
    }
  })();
  return {
    pool,
    async [Symbol.asyncDispose]() {
      await storm;
      pulling.abort();
      await loop;
      await deliveries.drain(20_000, new AbortController().signal);
      batches[Symbol.dispose]();
      await runner[Symbol.asyncDispose]();
      await place[Symbol.asyncDispose]();
      await bus[Symbol.asyncDispose]();
      await nats[Symbol.asyncDispose]();
      await s3[Symbol.asyncDispose]();
    },
  };
}

it('whatever breaks: every job ends with one outcome, copied as it stands, and its message goes only then', async () => {
  await using clear = new TestRunner(servers);
  const ids = Array.from({ length: JOBS }, (_, n) => `storm-${n}`);
  const calm = new AbortController();
  {
    await using one = await openStormy('one', calm.signal);
    await using _two = await openStormy('two', calm.signal);
    await using _three = await openStormy('three', calm.signal);
    const actions = [
      { type: 'wait', seconds: 0.3 },
      { type: 'type', text: 'hello' },
      { type: 'wait', seconds: 0.3 },
    ];
    for (const id of ids) {
      const policy = { name: 'scripted', params: { actions: [...actions, { type: 'done' }] } };
      await clear.publish(id, { policy, retry: { max_attempts: 20 } });
    }
    await eventually(() => one.pool.kill());
    await sleep(STORM_MS);
    calm.abort();
    await eventually(async () => !(await clear.queued('*')), 60_000);
  }
  // Every commit that was taken has a number; one that was refused has none.
  const { bus } = servers;
  expect((await bus.jsm.streams.info(bus.names.resultsStream)).state).toMatchObject({ messages: JOBS, last_seq: JOBS });
  let attempts = 0;
  for (const id of ids) {
    const outcome = await clear.outcome(id);
    expect(outcome?.result, id).toMatchObject({ status: 'completed', valid: true, steps: 4 });
    expect(await clear.resultJson(id)).toEqual(outcome?.result);
    const { attempt = null } = outcome?.result ?? {};
    const manifest = await readManifest(servers.place.store, objectKeys.attempt(id, 'j', attempt ?? ''));
    expect(manifest?.outcome).toEqual(outcome?.result);
    const history = await clear.attempts(id);
    attempts += history.length;
    expect(history.map((one) => one.attempt)).toContain(attempt);
  }
  // One machine died at least.
  expect(attempts).toBeGreaterThan(JOBS);
}, 120_000);
