import { createHash } from 'node:crypto';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ObjectDamaged, StorageRefused } from '../../runner/storage/errors.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { Recording } from '../../runner/storage/recorder.ts';
import type { Manifest } from '../../schemas/index.ts';
import { keysOf, never, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { type Fault, type S3Proxy, type SeenRequest, startS3Proxy } from '../support/s3-proxy.ts';
import { samplePng, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
let place: TestPlace;

const finish = (recording: Recording, signal = never) =>
  recording.finish({ outcome: sampleResult(recording.address), versions: {} }, signal);

/** Everything the manifest lists is in S3 with its hash, and nothing else is. */
async function expectWhole(recording: Recording, manifest: Manifest): Promise<void> {
  for (const { key, sha256 } of manifest.objects) {
    const bytes = await place.store.get(key, 1 << 24);
    expect(createHash('sha256').update(bytes).digest('hex'), key).toBe(sha256);
  }
  expect((await keysOf(place.store, recording)).length).toBe(manifest.objects.length + 1);
}

const putsOf = (name: string): SeenRequest[] =>
  proxy.seen.filter(({ method, path: at }) => method === 'PUT' && at.includes(name));

/** The first request of each kind of file is spoiled, later ones are not. */
function spoilFirst(fault: Fault, count = 1, spoiled = 'PUT'): (request: SeenRequest) => Fault | undefined {
  const times = new Map<string, number>();
  return ({ method, path: at }) => {
    if (method !== spoiled) return undefined;
    times.set(at, (times.get(at) ?? 0) + 1);
    return (times.get(at) ?? 0) <= count ? fault : undefined;
  };
}

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
});
beforeEach(async () => {
  proxy.rule = () => undefined;
  proxy.seen = [];
  place = await openPlace(
    { endpoint: proxy.endpoint, credentials: server.credentials, stallMs: 600 },
    { refusedMs: 600, probeMs: 200, growthMs: 200 },
  );
  await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
  proxy.seen = [];
});
afterEach(() => place[Symbol.asyncDispose]());
afterAll(async () => {
  await proxy?.[Symbol.asyncDispose]();
  await server?.stop();
});

describe('S3 goes away and comes back', () => {
  it('killed in mid-episode: recording goes on, and nothing is lost', async () => {
    await using recording = await place.begin();
    await recordStep(recording, 0);
    await server.kill();
    let slowest = 0;
    for (let step = 1; step <= 30; step++) {
      const startedAt = performance.now();
      await recordStep(recording, step);
      slowest = Math.max(slowest, performance.now() - startedAt);
      await sleep(20);
    }
    expect(slowest, 'no step waits for S3').toBeLessThan(1_500);
    expect(place.uploader.health).toMatchObject({
      ok: false,
      error: expect.stringContaining('no answer'),
      refused: false,
    });
    const finished = finish(recording);
    await sleep(500);
    await server.start();
    const manifest = await finished;
    expect(manifest.objects.length).toBe(33);
    await expectWhole(recording, manifest);
    expect(place.uploader.health).toEqual({ ok: true });
    const messages = place.logged.map(({ msg }) => msg);
    expect(messages.filter((msg) => msg === 'S3 takes trajectories again').length).toBe(1);
  });

  it('frozen for longer than a request may take: nothing is lost, nothing hangs', async () => {
    await using recording = await place.begin();
    await recordStep(recording, 0);
    server.freeze();
    for (let step = 1; step <= 5; step++) await recordStep(recording, step);
    const finished = finish(recording);
    await sleep(1_500);
    expect(place.uploader.health.ok).toBe(false);
    server.thaw();
    await expectWhole(recording, await finished);
  });

  it('away for good: the attempt ends when its deadline says so, and the spool goes', async () => {
    await using recording = await place.begin();
    await server.kill();
    await recordStep(recording, 0);
    await expect(finish(recording, AbortSignal.timeout(400))).rejects.toThrow(/timeout/);
    expect(await recording.leave(200)).toBe(false);
    await server.start();
  });

  it('is noticed when nothing is uploaded that would tell', async () => {
    {
      await using recording = await place.begin();
      await server.kill();
      await recordStep(recording, 0);
      await expect.poll(() => place.uploader.health.ok).toBe(false);
    }
    await sleep(300);
    expect(place.uploader.health.ok).toBe(false);
    await server.start();
    await expect.poll(() => place.uploader.health.ok, { timeout: 3_000 }).toBe(true);
  });
});

describe('S3 spoils what it is sent', () => {
  const png = samplePng(300, 200);

  it.each<[string, Fault]>([
    ['503 SlowDown', { kind: 'status', status: 503, code: 'SlowDown' }],
    ['500', { kind: 'status', status: 500, code: 'InternalError' }],
    ['429', { kind: 'status', status: 429, code: 'TooManyRequests' }],
    ['a request cut half-way', { kind: 'cut_request', afterBytes: 1_000 }],
    ['a request cut before its last byte', { kind: 'cut_request', afterBytes: png.byteLength - 1 }],
    ['a slow answer', { kind: 'delay', ms: 900 }],
  ])('%s: each object is there once and whole', async (_, fault) => {
    await using recording = await place.begin();
    proxy.rule = spoilFirst(fault);
    for (let step = 0; step < 4; step++) await recordStep(recording, step, png);
    await expectWhole(recording, await finish(recording));
    for (let step = 0; step < 4; step++) {
      expect(putsOf(`step-000${step}`).filter(({ status }) => status === 200).length, `step ${step}`).toBe(1);
    }
  });

  it('a request cut half-way leaves nothing under its key', async () => {
    await using recording = await place.begin();
    proxy.rule = ({ path: at }) => (at.includes('step-0000') ? { kind: 'cut_request', afterBytes: 9_000 } : undefined);
    await recordStep(recording, 0, png);
    await expect.poll(() => putsOf('step-0000').length, { timeout: 5_000 }).toBeGreaterThan(2);
    expect(await keysOf(place.store, recording)).not.toContain('step-0000.png');
  });

  it('an answer that is lost: put again, the same object', async () => {
    await using recording = await place.begin();
    proxy.rule = spoilFirst({ kind: 'lose_answer' });
    for (let step = 0; step < 4; step++) await recordStep(recording, step, png);
    await expectWhole(recording, await finish(recording));
    expect(putsOf('step-0002').length).toBe(2);
  });

  it('a byte changed on the way is refused by the server, and sent again', async () => {
    await using recording = await place.begin();
    proxy.rule = spoilFirst({ kind: 'corrupt' });
    await recordStep(recording, 0, png);
    const manifest = await finish(recording);
    expect(putsOf('step-0000').map(({ status }) => status)).toEqual([400, 200]);
    await expectWhole(recording, manifest);
  });

  it('bytes changed every time fail the attempt, and nothing wrong is stored', async () => {
    await using recording = await place.begin();
    proxy.rule = ({ path: at }) => (at.includes('step-0000') ? { kind: 'corrupt' } : undefined);
    await recordStep(recording, 0, png);
    await expect(finish(recording)).rejects.toThrow(ObjectDamaged);
    expect(recording.failed.aborted).toBe(true);
    expect(await keysOf(place.store, recording)).toEqual(['job.json', 'trajectory.jsonl']);
  });

  it('an object that it took and lost is put again before the manifest', async () => {
    await using recording = await place.begin();
    const key = await recordStep(recording, 0, png);
    await expect.poll(() => putsOf('step-0000').filter(({ status }) => status === 200).length).toBe(1);
    await rm(path.join(server.folder, 'gymbus', key));
    await expectWhole(recording, await finish(recording));
    expect(place.logged.map(({ msg }) => msg)).toContain('files are not in S3 as they were put; putting them again');
  });

  it('an answer that breaks off is read again', async () => {
    await place.store.put('x/read', png, 'image/png');
    let cut = false;
    proxy.rule = () => {
      if (cut) return undefined;
      cut = true;
      return { kind: 'cut_answer', afterBytes: 2_000 };
    };
    expect(await place.store.get('x/read', 1 << 20)).toEqual(png);
    cut = false;
    const file = path.join(place.folder, 'read.png');
    expect(await place.store.download('x/read', file)).toEqual({
      bytes: png.byteLength,
      sha256: createHash('sha256').update(png).digest('hex'),
    });
  });
});

describe('S3 says no', () => {
  const refused = { kind: 'status', status: 403, code: 'AccessDenied' } as const;

  it('while recording: the attempt fails with the remedy, after the time to put it right', async () => {
    await using recording = await place.begin();
    proxy.rule = ({ path: at }) => (at.includes('step-') ? refused : undefined);
    await recordStep(recording, 0);
    const finished = finish(recording).catch((caught: unknown) => caught);
    await expect.poll(() => place.uploader.health).toMatchObject({ ok: false, refused: true });
    const error = await finished;
    expect(error).toBeInstanceOf(StorageRefused);
    expect((error as StorageRefused).message).toMatch(/AccessDenied.*give the account s3:PutObject/);
    expect(recording.failed.reason).toBe(error);
    expect(await keysOf(place.store, recording)).not.toContain('manifest.json');
    // Nothing is uploaded any more that would tell; it is asked.
    await expect.poll(() => place.uploader.health.ok).toBe(true);
  });

  it.each([
    ['puts', 'PUT'],
    ['the listing that tells whether all is there', 'GET'],
  ])('to %s and thinks better of it in time: nothing is lost', async (_, method) => {
    await using recording = await place.begin();
    proxy.rule = spoilFirst(refused, 2, method);
    await recordStep(recording, 0);
    const manifest = await finish(recording);
    expect(proxy.seen.some((request) => request.method === method && request.status === 403)).toBe(true);
    proxy.rule = () => undefined;
    await expectWhole(recording, manifest);
  });
});
