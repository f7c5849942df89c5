import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ObjectDamaged, ObjectMissing } from '../../runner/storage/errors.ts';
import { downloadAttempt, listAttempts, readManifest } from '../../runner/storage/reader.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { Manifest } from '../../schemas/index.ts';
import { never, newAddress, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { type S3Proxy, startS3Proxy } from '../support/s3-proxy.ts';
import { sampleAttempt, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
let place: TestPlace;
let folder: string;

/** Records an attempt of `steps` steps. @returns its folder key, and its manifest when it was finished */
async function record(
  steps: number,
  finished = true,
  address = newAddress(),
): Promise<{ prefix: string; manifest: Manifest | null }> {
  await using recording = await place.begin(address);
  for (let step = 0; step < steps; step++) await recordStep(recording, step);
  await recording.diagnostics({ serialLog: Buffer.from('boot\n'), lastPicture: null });
  const manifest = finished ? await recording.finish({ outcome: sampleResult(address), versions: {} }, never) : null;
  if (!finished) await recording.leave(10_000);
  return { prefix: recording.url.replace('s3://gymbus/', ''), manifest };
}

const getsOf = (name: string): number =>
  proxy.seen.filter(({ method, path: at }) => method === 'GET' && at.includes(name)).length;

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
  place = await openPlace({ endpoint: proxy.endpoint, credentials: server.credentials });
  await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
});
beforeEach(async () => {
  proxy.rule = () => undefined;
  proxy.seen = [];
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-get-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));
afterAll(async () => {
  await place?.[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await server?.stop();
});

describe('a trajectory', () => {
  it('comes down as it was recorded, with progress', async () => {
    const { prefix, manifest } = await record(5);
    const seen: number[] = [];
    const report = await downloadAttempt(place.store, prefix, folder, { onProgress: ({ files }) => seen.push(files) });
    expect(report).toMatchObject({ finished: true, kept: 0, files: 8, filesTotal: 8, verified: 8 });
    expect(report.bytes).toBe(report.bytesTotal);
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    for (const { key, bytes, sha256 } of manifest?.objects ?? []) {
      const file = await readFile(path.join(folder, key.slice(prefix.length)));
      expect(file.byteLength).toBe(bytes);
      expect(createHash('sha256').update(file).digest('hex'), key).toBe(sha256);
    }
    expect(JSON.parse(await readFile(path.join(folder, 'manifest.json'), 'utf8'))).toEqual(manifest);
  });

  it('whose download broke off is resumed: what is there and right is kept, the rest is fetched', async () => {
    const { prefix } = await record(6);
    proxy.rule = ({ path: at }) =>
      at.includes('step-0004') ? { kind: 'status', status: 403, code: 'AccessDenied' } : undefined;
    await expect(downloadAttempt(place.store, prefix, folder)).rejects.toThrow(/step-0004.*AccessDenied/);
    const first = await readdir(folder, { recursive: true });
    expect(first).not.toContain('manifest.json');
    expect(first.filter((name) => name.endsWith('.part'))).toEqual([]);
    await writeFile(path.join(folder, 'step-0001.png'), 'damaged since');

    proxy.rule = () => undefined;
    proxy.seen = [];
    const report = await downloadAttempt(place.store, prefix, folder);
    expect(report.kept).toBeGreaterThan(0);
    expect(getsOf('step-0000')).toBe(0);
    expect(getsOf('step-0001')).toBe(1);
    expect(getsOf('step-0004')).toBe(1);
    expect(await downloadAttempt(place.store, prefix, folder)).toMatchObject({ kept: report.filesTotal });
  });

  it('changed in the bucket is found out, by name, and not left in the directory', async () => {
    const { prefix } = await record(3);
    const size = (await place.store.head(`${prefix}step-0001.png`))?.bytes ?? 0;
    await place.store.put(`${prefix}step-0001.png`, Buffer.alloc(size), 'image/png');
    await expect(downloadAttempt(place.store, prefix, folder)).rejects.toThrow(ObjectDamaged);
    await expect(downloadAttempt(place.store, prefix, folder)).rejects.toThrow(/step-0001\.png has .* recorded were/);
    expect(await readdir(folder)).not.toContain('step-0001.png');
    expect(await readdir(folder)).not.toContain('manifest.json');
  });

  it('that is unfinished comes down as far as it goes, checked against its own lines', async () => {
    const { prefix } = await record(4, false);
    const report = await downloadAttempt(place.store, prefix, folder);
    expect(report).toMatchObject({ finished: false, files: 7, verified: 4 });
    expect(await readdir(folder)).not.toContain('manifest.json');
    await place.store.put(`${prefix}step-0002.png`, Buffer.from('other'), 'image/png');
    await expect(downloadAttempt(place.store, prefix, folder)).rejects.toThrow(/step-0002/);
  });

  it('that is not there is said to be not there', async () => {
    await expect(downloadAttempt(place.store, 'batches/no/jobs/no/attempts/1-abcdefgh/', folder)).rejects.toThrow(
      ObjectMissing,
    );
  });

  it('with a key outside its folder writes nothing there', async () => {
    const { prefix, manifest } = await record(1);
    for (const key of [`${prefix}../../../../escaped.txt`, 'images/x/y', `${prefix}/etc/passwd`, prefix]) {
      const forged = { ...manifest, objects: [{ key, bytes: 1, sha256: '0'.repeat(64), content_type: 'x' }] };
      await place.store.put(`${prefix}manifest.json`, Buffer.from(JSON.stringify(forged)), 'application/json');
      await expect(downloadAttempt(place.store, prefix, folder), key).rejects.toThrow(/not one of its own files/);
    }
    expect(await readdir(folder)).toEqual([]);
  });

  it('with a manifest that cannot be read says so', async () => {
    const { prefix } = await record(1);
    for (const text of ['{', '{"schema":"gymbus.manifest.v1"}']) {
      await place.store.put(`${prefix}manifest.json`, Buffer.from(text), 'application/json');
      await expect(readManifest(place.store, prefix)).rejects.toThrow(/manifest\.json is no manifest/);
    }
  });
});

describe('the attempts of a job', () => {
  it('are listed in their order, with what they hold', async () => {
    const { batch, job } = newAddress();
    for (const [n, finished] of [
      [2, false],
      [10, true],
      [1, false],
    ] as const) {
      await record(n, finished, { batch, job, attempt: sampleAttempt(n) });
    }
    const attempts = await listAttempts(place.store, batch, job);
    expect(attempts.map(({ attempt, finished, objects }) => [Number.parseInt(attempt, 10), finished, objects])).toEqual(
      [
        [1, false, 4],
        [2, false, 5],
        [10, true, 14],
      ],
    );
    expect(attempts[2]?.bytes).toBeGreaterThan(10 * 3_000);
    expect(attempts[2]?.modifiedAt?.getTime()).toBeGreaterThan(Date.now() - 60_000);
  });

  it('of a job that has none are none', async () => {
    expect(await listAttempts(place.store, 'nobody', 'nothing')).toEqual([]);
  });
});

describe('a listing', () => {
  it('goes through pages, in the order of keys', async () => {
    const names = Array.from({ length: 2_100 }, (_, n) => `paged/${String(n).padStart(5, '0')}`);
    // The server keeps objects as plain files: this many are made faster behind its back.
    await mkdir(path.join(server.folder, 'gymbus/paged'), { recursive: true });
    for (const name of names) writeFileSync(path.join(server.folder, 'gymbus', name), 'x');
    proxy.seen = [];
    const found = [];
    for await (const { key } of place.store.list('paged/')) found.push(key);
    expect(found).toEqual(names);
    expect(proxy.seen.length).toBe(3);
    const rest = [];
    for await (const { key } of place.store.list('paged/', { startAfter: 'paged/02097' })) rest.push(key);
    expect(rest).toEqual(['paged/02098', 'paged/02099']);
  });
});

it('the manifest is the last of its attempt also by the time S3 gives', async () => {
  const { prefix } = await record(20);
  const times = new Map<string, number>();
  for await (const { key, modifiedAt } of place.store.list(prefix))
    times.set(key.slice(prefix.length), modifiedAt?.getTime() ?? 0);
  const manifest = times.get('manifest.json') ?? 0;
  expect(Math.max(...times.values())).toBe(manifest);
  // S3's times are whole seconds; the files on the server's disk tell more.
  const onDisk = async (name: string) => (await stat(path.join(server.folder, 'gymbus', prefix, name))).mtimeMs;
  for (const name of times.keys()) expect(await onDisk(name), name).toBeLessThanOrEqual(await onDisk('manifest.json'));
});
