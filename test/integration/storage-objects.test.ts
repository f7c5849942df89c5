import { createHash, randomBytes } from 'node:crypto';
import { truncate, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ObjectDamaged } from '../../runner/storage/errors.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { FileBody } from '../../runner/storage/s3.ts';
import { never, openPlace, type TestPlace } from '../support/recording.ts';
import { type S3Proxy, startS3Proxy } from '../support/s3-proxy.ts';
import { startVersitygw } from '../support/versitygw.ts';

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
let place: TestPlace;
const once = { patienceMs: 0 };

async function file(bytes: Buffer): Promise<FileBody> {
  const at = path.join(place.folder, 'body');
  await writeFile(at, bytes);
  return { path: at, bytes: bytes.byteLength, sha256: createHash('sha256').update(bytes).digest('hex') };
}

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
  place = await openPlace({ endpoint: proxy.endpoint, credentials: server.credentials });
  await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
});
beforeEach(() => {
  proxy.rule = () => undefined;
  proxy.seen = [];
});
afterAll(async () => {
  await place?.[Symbol.asyncDispose]();
  await proxy?.[Symbol.asyncDispose]();
  await server?.stop();
});

/** Read whole, streamed, and in parts. */
describe.each([0, 1, 200_000, 3_000_000, 36_000_000])('a file of %d bytes', (size) => {
  const bytes = randomBytes(size);

  it('is put whole, and reads back as it was', async () => {
    const body = await file(bytes);
    await place.store.putFile(`f/${size}`, body, 'image/png', once);
    expect(await place.store.head(`f/${size}`)).toMatchObject({ bytes: size, contentType: 'image/png' });
    const back = await place.store.download(`f/${size}`, path.join(place.folder, 'back'));
    expect(back).toEqual({ bytes: size, sha256: body.sha256 });
  });

  it('is refused when its hash is another, and nothing is under its key', async () => {
    const body = await file(bytes);
    const wrong = { ...body, sha256: createHash('sha256').update('something else').digest('hex') };
    await expect(place.store.putFile(`w/${size}`, wrong, 'image/png', once)).rejects.toThrow(ObjectDamaged);
    expect(await place.store.head(`w/${size}`)).toBeNull();
  });

  it('that grows meanwhile is put as far as it was hashed', async () => {
    const body = await file(bytes);
    await writeFile(body.path, 'more', { flag: 'a' });
    await place.store.putFile(`g/${size}`, body, 'image/png', once);
    expect((await place.store.head(`g/${size}`))?.bytes).toBe(size);
  });
});

it.each([1, 200_000, 3_000_000, 36_000_000])('a file of %d bytes that became shorter is refused', async (size) => {
  const body = await file(randomBytes(size));
  await truncate(body.path, size - 1);
  await expect(place.store.putFile(`s/${size}`, body, 'image/png', once)).rejects.toThrow(ObjectDamaged);
  expect(await place.store.head(`s/${size}`)).toBeNull();
});

it.each([200_000, 3_000_000, 36_000_000])(
  'a file of %d bytes that is gone is an error of this machine',
  async (size) => {
    const body = { ...(await file(randomBytes(1))), bytes: size, path: path.join(place.folder, 'gone') };
    await expect(place.store.putFile(`gone/${size}`, body, 'image/png')).rejects.toThrow(/ENOENT/);
  },
);

it('a put in parts that is given up leaves no object', async () => {
  const body = await file(randomBytes(36_000_000));
  proxy.rule = ({ path: at }) => (at.includes('partNumber=3') ? { kind: 'delay', ms: 30_000 } : undefined);
  const put = place.store.putFile('parts', body, 'x/y', { signal: AbortSignal.timeout(1_000) });
  await expect(put).rejects.toThrow(/timeout/);
  expect(await place.store.head('parts')).toBeNull();
  // The parts are thrown away on the server too.
  await expect.poll(() => proxy.seen.some(({ method }) => method === 'DELETE')).toBe(true);
});

it('a put in parts survives a part that fails', async () => {
  const body = await file(randomBytes(36_000_000));
  let failed = false;
  proxy.rule = ({ path: at }) => {
    if (failed || !at.includes('partNumber=2')) return undefined;
    failed = true;
    return { kind: 'status', status: 503, code: 'SlowDown' };
  };
  await place.store.putFile('parts-again', body, 'x/y', once);
  expect((await place.store.head('parts-again'))?.bytes).toBe(36_000_000);
  expect(proxy.seen.filter(({ path: at }) => at.includes('partNumber=1')).length).toBe(1);
});

it.each(['a b (1)', 'ä/日本語.txt', 'a+b&c=d', "it's", 'x%20y'])('the key %j is taken as it is', async (name) => {
  await place.store.put(`odd/${name}`, Buffer.from(name), 'text/plain');
  expect((await place.store.get(`odd/${name}`, 100)).toString()).toBe(name);
  const keys = [];
  for await (const { key } of place.store.list('odd/')) keys.push(key);
  expect(keys).toContain(`odd/${name}`);
});
