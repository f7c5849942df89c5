import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, open, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { findImage, type Image, imageDirectory } from '../../images/store.ts';
import { bucketOf } from '../../runner/cli/image-pull.ts';
import { imagesFor } from '../../runner/cli/images.ts';
import { readConfig } from '../../runner/host/config.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { type Ended, runGymbus } from '../support/command.ts';
import { blocksOf, hashesOf, makeUpImage } from '../support/made-up-image.ts';
import { never, openPlace, type TestPlace } from '../support/recording.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { type S3Proxy, startS3Proxy } from '../support/s3-proxy.ts';
import { startVersitygw } from '../support/versitygw.ts';

const MIB = 2 ** 20;
const NAME = 'made-up';
const DIGEST = 'a'.repeat(64);
const NEWER = 'b'.repeat(64);
/** 300 MiB of disk, of which data lies in seven chunks, in one of them twice. */
const DISK_BYTES = 300 * MIB;
const DATA_AT = [0, 5, 40, 90, 140, 190, 240, 298].map((mib) => mib * MIB);
/** Those and one each of kernel, initrd, lock and manifest. */
const CHUNKS = 7 + 4;
const FEW = 3;

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
let place: TestPlace;
let folder: string;
let here: string;
let there: string;
let image: Image;
let env: Record<string, string>;

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
  place = await openPlace({ endpoint: server.endpoint, credentials: server.credentials });
  await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
});
afterAll(async () => {
  await place?.[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await server?.stop();
});
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-bucket-'));
  [here = '', there = ''] = ['here', 'there'].map((name) => path.join(folder, name));
  image = await makeUpImage(here, { name: NAME, digest: DIGEST, diskBytes: DISK_BYTES, dataAt: DATA_AT });
  env = {
    ...{
      NATS_URL: '',
      AWS_ENDPOINT_URL: proxy.endpoint,
      GYMBUS_BUCKET: 'gymbus',
      GYMBUS_DATA: path.join(folder, 'data'),
    },
    AWS_ACCESS_KEY_ID: server.credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
  };
  proxy.seen = [];
});
afterEach(async () => {
  proxy.rule = () => undefined;
  await rm(folder, { recursive: true, force: true });
  await rm(path.join(server.folder, 'gymbus/images'), { recursive: true, force: true });
});

const gymbus = (cacheDir: string, ...args: string[]): Promise<Ended> =>
  runGymbus(args, { ...env, GYMBUS_CACHE: cacheDir });
const push = (...args: string[]) => gymbus(here, 'image', 'push', ...args);
const pull = (...args: string[]) => gymbus(there, 'image', 'pull', ...args);
const requests = (method: string, what: RegExp = /\/chunks\/[0-9a-f]{64}/) =>
  proxy.seen.filter((seen) => seen.method === method && what.test(seen.path));
const bucketFolder = (digest = DIGEST): string => path.join(server.folder, 'gymbus/images', NAME, digest);
const inBucket = (digest?: string): Promise<string[]> => readdir(path.join(bucketFolder(digest), 'chunks'));

/** A command that is killed once a request has been held back. */
async function killedAt(cacheDir: string, method: string, after: number, ...args: string[]): Promise<void> {
  let count = 0;
  let reached: (() => void) | undefined;
  const held = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const kept: Promise<never> = new Promise(() => {});
  proxy.rule = (seen) => {
    if (seen.method !== method || !seen.path.includes('/chunks/')) return undefined;
    count += 1;
    if (count <= after) return undefined;
    reached?.();
    return { kind: 'hold', until: kept };
  };
  const child: ChildProcess = spawn(process.execPath, [gymbusCommand, ...args], {
    ...{ stdio: 'ignore', env: { ...process.env, ...env, GYMBUS_CACHE: cacheDir } },
  });
  const exit = once(child, 'exit');
  await held;
  child.kill('SIGKILL');
  await exit;
  proxy.rule = () => undefined;
  proxy.seen = [];
}

describe('push', () => {
  it('sends what is no hole, the index last; once', async () => {
    const { exitCode, stdout, stderr } = await push(NAME);
    expect({ exitCode, stdout }, stderr).toEqual({ exitCode: 0, stdout: `${NAME}@${DIGEST}` });
    expect(stderr).toContain(`${CHUNKS} chunks of`);
    expect(await inBucket()).toHaveLength(CHUNKS);
    const puts = requests('PUT', /./).map((seen) => seen.path);
    expect(puts).toHaveLength(CHUNKS + 1);
    expect(puts.at(-1)).toContain('/index.json');

    proxy.seen = [];
    expect(await push(`${NAME}@aaaa`)).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('was there') });
    expect(requests('PUT', /./)).toEqual([]);
  });

  it('that was killed leaves no image, and goes on where it was', async () => {
    await killedAt(here, 'PUT', FEW, 'image', 'push', NAME);
    expect(await pull(NAME)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('there is no image') });
    const left = (await inBucket()).length;
    expect(left).toBeGreaterThan(0);
    proxy.seen = [];
    const { exitCode, stderr } = await push(NAME);
    expect(exitCode, stderr).toBe(0);
    expect(requests('PUT')).toHaveLength(CHUNKS - left);
    expect(stderr).toContain(`${left} were there`);
    expect(await pull(NAME)).toMatchObject({ exitCode: 0 });
  });

  it('says of an image that is not in the cache what there is to do', async () => {
    const { exitCode, stderr } = await push('windows');
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`image "windows" is not in ${here}; gymbus image ls`);
    expect(requests('PUT', /./)).toEqual([]);
  });
});

describe('pull', () => {
  beforeEach(async () => {
    expect(await push(NAME)).toMatchObject({ exitCode: 0 });
    proxy.seen = [];
  });

  it('brings the same files, holes kept, and fetches nothing twice', async () => {
    const { exitCode, stdout, stderr } = await pull(NAME);
    expect({ exitCode, stdout }, stderr).toEqual({ exitCode: 0, stdout: imageDirectory(there, NAME, DIGEST) });
    expect(await hashesOf(stdout)).toEqual(await hashesOf(image.directory));
    const disk = path.join(stdout, 'disk.raw');
    expect(await blocksOf(disk)).toBeLessThan((DATA_AT.length + 2) * MIB);
    expect(requests('GET')).toHaveLength(CHUNKS);
    expect(await findImage(NAME, there)).toMatchObject({ digest: DIGEST });

    proxy.seen = [];
    expect(await pull(`${NAME}@${DIGEST}`)).toMatchObject({ exitCode: 0, stdout });
    expect(requests('GET')).toEqual([]);
  });

  it('takes the newest of a name, and by digest the one', async () => {
    await makeUpImage(here, { name: NAME, digest: NEWER, createdAt: '2026-01-02T00:00:00.000Z' });
    expect(await push(NAME)).toMatchObject({ stdout: `${NAME}@${NEWER}` });
    expect(await pull(NAME)).toMatchObject({ stdout: imageDirectory(there, NAME, NEWER) });
    expect(await pull(`${NAME}@aa`)).toMatchObject({ stdout: imageDirectory(there, NAME, DIGEST) });
    const { exitCode, stderr } = await pull(`${NAME}@cc`);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(
      `there is no image "${NAME}@cc" in s3://gymbus/images/; there are ${NAME}@bbbbbbbbbbbbbbbb, ${NAME}@aaaaaaaaaaaaaaaa`,
    );
  });

  it('that was killed leaves what the next one removes', async () => {
    await killedAt(there, 'GET', FEW, 'image', 'pull', NAME);
    const parent = path.dirname(imageDirectory(there, NAME, DIGEST));
    expect(await readdir(parent)).toEqual([`.build-${DIGEST.slice(0, 16)}`]);
    expect(await findImage(NAME, there)).toBeNull();
    await mkdir(path.join(parent, '.build-another'));
    expect(await pull(NAME)).toMatchObject({ exitCode: 0 });
    expect(await readdir(parent)).toEqual([DIGEST.slice(0, 16)]);
    expect(await hashesOf(imageDirectory(there, NAME, DIGEST))).toEqual(await hashesOf(image.directory));
  });

  it('twice at once fetches once', async () => {
    const both = await Promise.all([pull(NAME), pull(NAME)]);
    for (const { exitCode, stderr } of both) expect(exitCode, stderr).toBe(0);
    expect(requests('GET')).toHaveLength(CHUNKS);
  });

  it.each([
    ['another byte', (at: number) => ({ at, length: null }), 'is damaged'],
    ['an end that is missing', (at: number) => ({ at, length: at }), 'is damaged'],
    ['nothing at all', () => null, 'is not there'],
  ])('names a chunk with %s, keeps nothing, and has it mended by a push of all', async (_, damage, said) => {
    const [chunk = ''] = await inBucket();
    await spoil(path.join(bucketFolder(), 'chunks', chunk), damage(10));
    const { exitCode, stderr } = await pull(NAME);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`/chunks/${chunk}`);
    expect(stderr).toContain(said);
    expect(stderr).toMatch(/\((disk\.raw|vmlinuz|initrd|packages\.lock|image\.json), bytes \d+ to \d+\)/);
    expect(stderr).toContain(`gymbus image push --again ${NAME}@aaaaaaaaaaaaaaaa`);
    expect(stderr).not.toContain('    at ');
    expect(await readdir(path.dirname(imageDirectory(there, NAME, DIGEST)))).toEqual([]);
    expect(await push('--again', NAME)).toMatchObject({ exitCode: 0 });
    expect(await pull(NAME)).toMatchObject({ exitCode: 0 });
  });

  it('says of an index that cannot be read which it is', async () => {
    await spoil(path.join(bucketFolder(), 'index.json'), { at: 0, length: 20 });
    const { exitCode, stderr } = await pull(NAME);
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`images/${NAME}/${DIGEST}/index.json is no index of this version (`);
    expect(stderr).toContain(`; push the image again: gymbus image push --again ${NAME}@aaaaaaaaaaaaaaaa`);
  });
});

describe('an index that cannot be read', () => {
  const damaged = `images/${NAME}/${DIGEST}/index.json is no index of this version (`;
  beforeEach(async () => {
    await makeUpImage(here, { name: NAME, digest: NEWER, createdAt: '2026-01-02T00:00:00.000Z' });
    await push(`${NAME}@aa`);
    await push(`${NAME}@bb`);
    await spoil(path.join(bucketFolder(), 'index.json'), { at: 0, length: 20 });
  });

  it('keeps nobody from another of its name, and is named', async () => {
    const { exitCode, stdout, stderr } = await pull(NAME);
    expect({ exitCode, stdout }, stderr).toEqual({ exitCode: 0, stdout: imageDirectory(there, NAME, NEWER) });
    expect(stderr).toContain('warning: passed over: ');
    expect(stderr).toContain(damaged);
    expect(stderr).toContain(`gymbus image push --again ${NAME}@aaaaaaaaaaaaaaaa`);
  });

  it('is told where it is meant, and where no other is left', async () => {
    expect(await pull(`${NAME}@aa`)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(damaged) });
    expect(await pull(`${NAME}@cc`)).toMatchObject({
      ...{ exitCode: 1, stderr: expect.stringContaining(`; there are ${NAME}@bbbbbbbbbbbbbbbb`) },
    });
    await rm(bucketFolder(NEWER), { recursive: true });
    expect(await pull(NAME)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(damaged) });
  });

  it('keeps no runner from its start, and is told in its log', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(line) });
    const config = readConfig({ ...env, GYMBUS_CACHE: there, GYMBUS_IMAGES: NAME });
    expect(await imagesFor(config, bucketOf(config, log, never))).toMatchObject([{ name: NAME, digest: NEWER }]);
    expect(lines.join('')).toContain(damaged);
  });
});

describe('a runner', () => {
  const log = pino({ level: 'silent' });
  const imagesOf = (wanted: string, endpoint = proxy.endpoint) => {
    const config = readConfig({ ...env, AWS_ENDPOINT_URL: endpoint, GYMBUS_CACHE: there, GYMBUS_IMAGES: wanted });
    return imagesFor(config, bucketOf(config, log, never));
  };

  it('fetches what its cache lacks, and what it has it takes from there', async () => {
    await push(NAME);
    proxy.seen = [];
    expect(await imagesOf(`${NAME}@aaaa`)).toMatchObject([{ name: NAME, digest: DIGEST }]);
    expect(requests('GET')).toHaveLength(CHUNKS);
    proxy.seen = [];
    expect(await imagesOf(NAME)).toMatchObject([{ name: NAME, digest: DIGEST }]);
    expect(proxy.seen).toEqual([]);
  });

  it('says of an image that is in neither place so, and how it gets there', async () => {
    await expect(imagesOf(`${NAME}@cccc`)).rejects.toThrow(
      `GYMBUS_IMAGES names ${NAME}@cccc, which is not in ${there}; it has no recipe either; recipes are debian-desktop, office; it is not in s3://gymbus/images/ either: gymbus image push ${NAME}@cccc, on a host that has it, puts it there`,
    );
    await expect(imagesOf('debian-desktop')).rejects.toThrow(
      `image debian-desktop is not in ${there}; make it with: gymbus image build debian-desktop; it is not in s3://gymbus/images/ either: gymbus image push`,
    );
  });

  it('says of a bucket that does not answer so', async () => {
    await expect(imagesOf(NAME, 'http://127.0.0.1:9')).rejects.toThrow(
      `; whether it is in s3://gymbus/images/ cannot be learnt: `,
    );
  });
});

async function spoil(file: string, damage: { at: number; length: number | null } | null): Promise<void> {
  if (damage === null) return rm(file);
  const handle = await open(file, 'r+');
  const byte = Buffer.alloc(1);
  await handle.read(byte, 0, 1, damage.at);
  await handle.write(Buffer.from([(byte[0] ?? 0) ^ 0xff]), 0, 1, damage.at);
  if (damage.length !== null) await handle.truncate(damage.length);
  await handle.close();
}
