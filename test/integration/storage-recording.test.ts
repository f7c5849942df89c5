import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Recorder } from '../../runner/job/recorder.ts';
import { ObjectDamaged } from '../../runner/storage/errors.ts';
import { readManifest } from '../../runner/storage/reader.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { Recording } from '../../runner/storage/recorder.ts';
import { putResult } from '../../runner/storage/result.ts';
import { Step } from '../../schemas/index.ts';
import { keysOf, never, newAddress, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { type S3Proxy, startS3Proxy } from '../support/s3-proxy.ts';
import { samplePng, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');

/** What is held after a collection, buffers included. */
async function memoryMiB(): Promise<number> {
  collect();
  await sleep(1);
  const { heapUsed, external } = process.memoryUsage();
  return (heapUsed + external) / 2 ** 20;
}

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
const places: TestPlace[] = [];

const place = async (options: Parameters<typeof openPlace>[1] = {}): Promise<TestPlace> => {
  const opened = await openPlace({ endpoint: proxy.endpoint, credentials: server.credentials }, options);
  places.push(opened);
  return opened;
};
const finish = (recording: Recording) =>
  recording.finish({ outcome: sampleResult(recording.address), versions: { gymbus: '0' } }, never);

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
  const { store, log } = await place();
  await waitForStorage(store, log, { createBucket: true, signal: never });
});
afterEach(() => {
  proxy.rule = () => undefined;
  proxy.seen = [];
  proxy.mostAtOnce = 0;
});
afterAll(async () => {
  for (const opened of places) await opened[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await server?.stop();
});

describe('a recording', () => {
  it('is a recorder as the step loop asks for, but for events', async () => {
    const recording = await (await place()).begin();
    const recorder: Omit<Recorder, 'event'> = recording;
    expect(await recorder.screenshot(0, samplePng(40, 30))).toMatchObject({ width: 40, height: 30 });
    await recording[Symbol.asyncDispose]();
  });

  it('ends in S3 whole, each object by name, length, hash and type in the manifest', async () => {
    const { store, begin, spool } = await place();
    const recording = await begin();
    recording.log.write('{"msg":"hello"}\n');
    const png = samplePng(80, 60);
    await recording.setup({ index: 0, type: 'execute', returncode: 0 });
    for (let step = 0; step < 4; step++) await recordStep(recording, step, png);
    await recording.a11yTree(1, '<tree/>');
    await recording.diagnostics({ serialLog: Buffer.from('boot\n'), lastPicture: png });
    expect(spool.bytes()).toBeGreaterThan(5 * png.byteLength);
    const manifest = await finish(recording);

    const prefix = recording.url.replace('s3://gymbus/', '');
    expect(manifest.objects.map(({ key }) => key.replace(prefix, ''))).toEqual([
      'diagnostics/last-picture.png',
      'diagnostics/serial.log',
      'diagnostics/setup.jsonl',
      'job.json',
      'runner.log',
      'step-0000.png',
      'step-0001.a11y.xml',
      'step-0001.png',
      'step-0002.png',
      'step-0003.png',
      'trajectory.jsonl',
    ]);
    expect(await keysOf(store, recording)).toEqual(
      [...manifest.objects.map(({ key }) => key.replace(prefix, '')), 'manifest.json'].sort(),
    );
    for (const object of manifest.objects) {
      const bytes = await store.get(object.key, 1 << 20);
      expect(bytes.byteLength, object.key).toBe(object.bytes);
      expect(createHash('sha256').update(bytes).digest('hex'), object.key).toBe(object.sha256);
      expect((await store.head(object.key))?.contentType, object.key).toBe(object.content_type);
    }
    expect(await readManifest(store, prefix)).toEqual(manifest);

    const lines = (await store.get(`${prefix}trajectory.jsonl`, 1 << 20)).toString().trimEnd().split('\n');
    const steps = lines.map((line) => Step.parse(JSON.parse(line)));
    expect(steps.map(({ step }) => step)).toEqual([0, 1, 2, 3]);
    expect(steps[2]?.observation.screenshot).toEqual({
      key: `${prefix}step-0002.png`,
      bytes: png.byteLength,
      sha256: createHash('sha256').update(png).digest('hex'),
      width: 80,
      height: 60,
    });

    await recording[Symbol.asyncDispose]();
    expect(spool.bytes()).toBe(0);
    expect(await readdir(spool.root)).toEqual([]);
  });

  it('has each picture in flight while the episode goes on', async () => {
    const { begin, store } = await place();
    const recording = await begin();
    const key = await recordStep(recording, 0);
    const deadline = performance.now() + 2_000;
    while ((await store.head(key)) === null && performance.now() < deadline) await sleep(10);
    expect(await store.head(key)).not.toBeNull();
    const [recorded] = (await keysOf(store, recording)).filter((name) => name === 'trajectory.jsonl');
    expect(recorded, 'the trajectory is readable before the episode is over').toBe('trajectory.jsonl');
    await recording[Symbol.asyncDispose]();
  });

  it('puts each picture once, and the growing trajectory at most once a growth time and at the end', async () => {
    const { begin } = await place({ growthMs: 300 });
    const recording = await begin();
    const startedAt = performance.now();
    for (let step = 0; step < 40; step++) {
      await recordStep(recording, step);
      await sleep(25);
    }
    const seconds = (performance.now() - startedAt) / 300;
    await finish(recording);
    await recording[Symbol.asyncDispose]();
    const puts = proxy.seen.filter(({ method }) => method === 'PUT').map(({ path }) => path.split('/').at(-1) ?? '');
    expect(puts.filter((name) => name.startsWith('step-')).length).toBe(40);
    const trajectory = puts.filter((name) => name.startsWith('trajectory')).length;
    expect(trajectory).toBeGreaterThanOrEqual(3);
    expect(trajectory).toBeLessThanOrEqual(Math.ceil(seconds) + 2);
  });

  it('has its manifest put after every other object is there', async () => {
    const { begin } = await place();
    const recording = await begin();
    // Every put but the manifest's is slow: one that did not wait would overtake.
    proxy.rule = ({ method, path }) =>
      method === 'PUT' && !path.includes('manifest') ? { kind: 'delay', ms: 150 } : undefined;
    for (let step = 0; step < 20; step++) await recordStep(recording, step);
    await finish(recording);
    await recording[Symbol.asyncDispose]();
    const puts = proxy.seen.filter(({ method }) => method === 'PUT');
    expect(puts.at(-1)?.path).toContain('manifest.json');
    expect(puts.every(({ status }) => status === 200)).toBe(true);
  });

  it('tells the outcome how long the tail of the upload took', async () => {
    const { begin } = await place();
    const recording = await begin();
    proxy.rule = ({ path }) => (path.includes('step-0000') ? { kind: 'delay', ms: 300 } : undefined);
    await recordStep(recording, 0);
    const manifest = await recording.finish(
      {
        outcome: (upload_tail) => sampleResult(recording.address, { timings_ms: { upload_tail } }),
        versions: {},
      },
      never,
    );
    expect(manifest.timings_ms.upload_tail).toBeGreaterThan(200);
    expect(manifest.outcome.timings_ms).toEqual(manifest.timings_ms);
    await recording[Symbol.asyncDispose]();
  });

  it('refuses the outcome of another attempt', async () => {
    const { begin } = await place();
    const recording = await begin();
    await expect(recording.finish({ outcome: sampleResult(newAddress()), versions: {} }, never)).rejects.toThrow(
      /the outcome is of/,
    );
    await recording[Symbol.asyncDispose]();
  });

  it('refuses a truncated picture, a second picture of a step, and anything after its end', async () => {
    const { begin } = await place();
    const recording = await begin();
    const png = samplePng();
    for (const cut of [0, 7, 20, png.byteLength / 2, png.byteLength - 1]) {
      await expect(recording.screenshot(0, png.subarray(0, cut)), `cut at ${cut}`).rejects.toThrow(ObjectDamaged);
    }
    await recordStep(recording, 0);
    await expect(recording.screenshot(0, png)).rejects.toThrow(/step-0000.png .* written already/);
    const { objects } = await finish(recording);
    expect(objects.map(({ key }) => key.split('/').at(-1))).toEqual(['job.json', 'step-0000.png', 'trajectory.jsonl']);
    await expect(recording.screenshot(1, png)).rejects.toThrow(/sealed/);
    recording.log.write('{"msg":"late"}\n');
    await recording[Symbol.asyncDispose]();
  });

  it('left unfinished has what there was, and no manifest', async () => {
    const { begin, store, spool } = await place();
    const recording = await begin();
    await recordStep(recording, 0);
    expect(await recording.leave(5_000)).toBe(true);
    expect(await keysOf(store, recording)).toEqual(['job.json', 'step-0000.png', 'trajectory.jsonl']);
    await recording[Symbol.asyncDispose]();
    expect(existsSync(spool.root) && (await readdir(spool.root))).toEqual([]);
  });

  it('takes the lines of a pino logger', async () => {
    const { begin, store } = await place();
    const recording = await begin();
    const main: string[] = [];
    const log = pino(
      {},
      pino.multistream([{ stream: { write: (line) => void main.push(line) } }, { stream: recording.log }]),
    );
    for (let line = 0; line < 500; line++) log.info({ line }, 'a line');
    await finish(recording);
    const prefix = recording.url.replace('s3://gymbus/', '');
    expect((await store.get(`${prefix}runner.log`, 1 << 20)).toString()).toBe(main.join(''));
    await recording[Symbol.asyncDispose]();
  });
});

describe('the uploader', () => {
  it('goes round the attempts: a long backlog does not hold up a short attempt', async () => {
    const { begin } = await place({ concurrency: 2 });
    proxy.rule = ({ method }) => (method === 'PUT' ? { kind: 'delay', ms: 20 } : undefined);
    const long = await begin();
    for (let step = 0; step < 80; step++) await recordStep(long, step);
    const short = await begin();
    await recordStep(short, 0);
    await finish(short);
    const { length } = proxy.seen.filter(({ path, status }) => path.includes(long.address.attempt) && status === 200);
    expect(length).toBeLessThan(60);
    await finish(long);
    await long[Symbol.asyncDispose]();
    await short[Symbol.asyncDispose]();
  });

  it('has no more puts under way than it may', async () => {
    const { begin } = await place({ concurrency: 3 });
    proxy.rule = ({ method }) => (method === 'PUT' ? { kind: 'delay', ms: 10 } : undefined);
    const recordings = await Promise.all([begin(), begin(), begin(), begin()]);
    await Promise.all(
      recordings.map(async (recording) => {
        for (let step = 0; step < 10; step++) await recordStep(recording, step);
        await recording.leave(10_000);
      }),
    );
    const listsOfFlush = recordings.length;
    expect(proxy.mostAtOnce).toBeGreaterThanOrEqual(3);
    expect(proxy.mostAtOnce).toBeLessThanOrEqual(3 + listsOfFlush);
    for (const recording of recordings) await recording[Symbol.asyncDispose]();
  });

  it('drops an attempt at once, whatever is in flight', async () => {
    const { begin, spool } = await place();
    proxy.rule = () => ({ kind: 'delay', ms: 5_000 });
    const recording = await begin();
    for (let step = 0; step < 20; step++) await recordStep(recording, step);
    const startedAt = performance.now();
    await recording[Symbol.asyncDispose]();
    await recording[Symbol.asyncDispose]();
    expect(performance.now() - startedAt).toBeLessThan(2_500);
    expect(await readdir(spool.root)).toEqual([]);
  });

  it('stops for an attempt whose signal aborts, and flush says why', async () => {
    const { begin } = await place();
    proxy.rule = () => ({ kind: 'delay', ms: 5_000 });
    const attempt = new AbortController();
    const recording = await begin(newAddress(), attempt.signal);
    await recordStep(recording, 0);
    const finished = finish(recording);
    attempt.abort(new Error('the lease is lost'));
    await expect(finished).rejects.toThrow('the lease is lost');
    await recording[Symbol.asyncDispose]();
  });

  it('holds 500 steps in flat memory, S3 away all the while', async () => {
    const { begin, store } = await place();
    const recording = await begin();
    proxy.rule = ({ method }) => (method === 'PUT' ? { kind: 'status', status: 503, code: 'SlowDown' } : undefined);
    const png = samplePng(400, 300);
    const held: number[] = [];
    for (let step = 0; step < 500; step++) {
      await recordStep(recording, step, png);
      if (step % 100 === 50) held.push(await memoryMiB());
    }
    proxy.rule = () => undefined;
    const manifest = await finish(recording);
    expect(manifest.objects.length).toBe(502);
    expect((await keysOf(store, recording)).length).toBe(503);
    // 60 MB were recorded; what is held is the files in flight, never the backlog.
    const growth = Math.max(...held) - (held[0] ?? 0);
    expect(growth, `MiB after every 100 steps: ${held.map(Math.round).join(', ')}`).toBeLessThan(16);
    await recording[Symbol.asyncDispose]();
  });
});

describe('result.json', () => {
  it('is put any number of times, and is the outcome', async () => {
    const { store } = await place();
    const result = sampleResult(newAddress());
    await Promise.all([putResult(store, result), putResult(store, result), putResult(store, result)]);
    const bytes = await store.get(`batches/${result.batch_id}/jobs/${result.job_id}/result.json`, 1 << 20);
    expect(JSON.parse(bytes.toString())).toEqual(result);
  });
});
