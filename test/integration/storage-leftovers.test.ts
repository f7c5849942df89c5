import { mkdir, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { execa } from 'execa';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { uploadLeftovers } from '../../runner/storage/leftovers.ts';
import { pngSize } from '../../runner/storage/png.ts';
import { listAttempts } from '../../runner/storage/reader.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { AttemptAddress } from '../../runner/storage/spool.ts';
import { Step } from '../../schemas/index.ts';
import { never, newAddress, openPlace, type TestPlace } from '../support/recording.ts';
import { type S3Proxy, startS3Proxy } from '../support/s3-proxy.ts';
import { startVersitygw } from '../support/versitygw.ts';

let server: Awaited<ReturnType<typeof startVersitygw>>;
let proxy: S3Proxy;
let place: TestPlace;

/** Records in a process of its own until it has said `last`, then kills that process. */
async function recordAndKill(address: AttemptAddress, steps: number, last: string, end = ''): Promise<void> {
  const script = path.join(import.meta.dirname, '../support/recording-process.ts');
  const args = [proxy.endpoint, place.spool.root, JSON.stringify(address), String(steps), end];
  const child = execa(process.execPath, ['--import', 'tsx', script, ...args], { reject: false, stderr: 'inherit' });
  const lines = createInterface(child.stdout);
  for await (const line of lines) if (line === last) break;
  // What is in flight is in the middle of it.
  if (end !== '' && last === 'recorded') await expect.poll(() => manifestAsked(), { timeout: 10_000 }).toBe(true);
  child.kill('SIGKILL');
  await child;
}

const manifestAsked = (): boolean => proxy.seen.some(({ path: at }) => at.includes('manifest.json'));
const clear = (options: { budgetMs?: number } = {}) =>
  uploadLeftovers(place.spool, place.store, place.log, { signal: never, ...options });
async function keys({ batch, job, attempt }: AttemptAddress): Promise<string[]> {
  const prefix = `batches/${batch}/jobs/${job}/attempts/${attempt}/`;
  const found = [];
  for await (const { key } of place.store.list(prefix)) found.push(key.slice(prefix.length));
  return found;
}

beforeAll(async () => {
  server = await startVersitygw();
  proxy = await startS3Proxy(server.port);
  place = await openPlace(server);
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

describe('what a killed runner left', () => {
  it('is uploaded as an unfinished attempt, whole and readable, then deleted', async () => {
    const address = newAddress();
    proxy.rule = ({ method }) => (method === 'PUT' ? { kind: 'delay', ms: 300 } : undefined);
    await recordAndKill(address, 30, 'recorded');
    expect((await keys(address)).length, 'it was killed while it uploaded').toBeLessThan(32);

    const [report] = await clear();
    expect(report).toMatchObject({ attempt: address.attempt, whole: true });
    const found = await keys(address);
    expect(found.length).toBe(32);
    expect(found).not.toContain('manifest.json');
    expect(found).not.toContain('spool.json');
    const prefix = `batches/${address.batch}/jobs/${address.job}/attempts/${address.attempt}/`;
    const text = (await place.store.get(`${prefix}trajectory.jsonl`, 1 << 20)).toString();
    for (const line of text.trimEnd().split('\n')) {
      const { screenshot } = Step.parse(JSON.parse(line)).observation;
      const png = await place.store.get(screenshot?.key ?? '', 1 << 20);
      expect(pngSize(png)).toEqual({ width: screenshot?.width, height: screenshot?.height });
    }
    expect(await readdir(place.spool.root)).toEqual([]);
    expect(await listAttempts(place.store, address.batch, address.job)).toMatchObject([
      { finished: false, objects: 32 },
    ]);
    expect(await clear()).toEqual([]);
  });

  it('killed with its manifest on disk and not in S3: it stays unfinished', async () => {
    const address = newAddress();
    proxy.rule = ({ path: at }) => (at.includes('manifest.json') ? { kind: 'delay', ms: 60_000 } : undefined);
    await recordAndKill(address, 3, 'recorded', 'finish');
    expect(await readdir(path.join(place.spool.root, address.attempt))).toContain('manifest.json');
    await clear();
    expect(await keys(address)).not.toContain('manifest.json');
    expect((await keys(address)).length).toBe(5);
  });

  it('killed with its manifest in S3: not touched', async () => {
    const address = newAddress();
    await recordAndKill(address, 3, 'finished', 'finish');
    const [report] = await clear();
    expect(report).toEqual({ attempt: address.attempt, uploaded: 0, whole: true });
    expect(await keys(address)).toContain('manifest.json');
  });

  it('is deleted when its time is over, S3 there or not', async () => {
    const address = newAddress();
    await server.kill();
    await recordAndKill(address, 3, 'recorded');
    const startedAt = performance.now();
    expect(await clear({ budgetMs: 600 })).toEqual([{ attempt: address.attempt, uploaded: 0, whole: false }]);
    expect(performance.now() - startedAt).toBeLessThan(3_000);
    expect(await readdir(place.spool.root)).toEqual([]);
    await server.start();
  });

  it("with files half written, or nobody's, is cleared without them", async () => {
    const address = newAddress();
    await recordAndKill(address, 2, 'recorded');
    await writeFile(path.join(place.spool.root, address.attempt, '.writing-step-0002.png'), 'half');
    await mkdir(path.join(place.spool.root, 'nobody'));
    await writeFile(path.join(place.spool.root, 'torn'), '{"schema":');
    const reports = await clear();
    expect(reports.map(({ whole }) => whole).sort()).toEqual([false, false, true]);
    expect(await keys(address)).toEqual(['job.json', 'step-0000.png', 'step-0001.png', 'trajectory.jsonl']);
    expect(await readdir(place.spool.root)).toEqual([]);
  });

  it('is never an attempt under way', async () => {
    await using recording = await place.begin();
    expect(await clear()).toEqual([]);
    expect(await readdir(place.spool.root)).toEqual([recording.address.attempt]);
  });
});
