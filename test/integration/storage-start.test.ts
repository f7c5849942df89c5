import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SetupError } from '../../functions/contract.ts';
import { StorageRefused } from '../../runner/storage/errors.ts';
import { readInput } from '../../runner/storage/inputs.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { ObjectStore, type S3Config } from '../../runner/storage/s3.ts';
import { recordingLog } from '../support/nats.ts';
import { never } from '../support/recording.ts';
import { startVersitygw } from '../support/versitygw.ts';

let server: Awaited<ReturnType<typeof startVersitygw>>;
let config: S3Config & { bucket: string };

/** What a runner says, or fails with, when it starts against this S3. */
async function refusal(over: Partial<S3Config>, createBucket = false): Promise<StorageRefused> {
  const store = new ObjectStore({ ...config, ...over });
  const started = waitForStorage(store, recordingLog().log, { createBucket, signal: AbortSignal.timeout(10_000) });
  const error = await started.then(
    () => new Error('it started'),
    (caught: unknown) => caught,
  );
  store[Symbol.dispose]();
  expect(error).toBeInstanceOf(StorageRefused);
  return error as StorageRefused;
}

beforeAll(async () => {
  server = await startVersitygw();
  config = { endpoint: server.endpoint, region: 'us-east-1', bucket: 'gymbus', credentials: server.credentials };
});
afterAll(() => server?.stop());

describe('at the start', () => {
  it('S3 that is not there is waited for, and that is said every five seconds', async () => {
    await server.kill();
    const { log, lines } = recordingLog();
    const store = new ObjectStore({ ...config, bucket: 'waited-for' });
    const ready = waitForStorage(store, log, { createBucket: true, signal: never });
    await sleep(6_000);
    const warnings = lines().filter(({ level }) => level === 40);
    expect(warnings.length).toBe(2);
    expect(warnings[0]).toMatchObject({
      msg: 'S3 is not there; waiting for it (AWS_ENDPOINT_URL says where)',
      endpoint: server.endpoint,
      error: expect.stringContaining('ECONNREFUSED'),
    });
    await server.start();
    await ready;
    expect(lines().at(-1)).toMatchObject({ msg: 'S3 is there' });
    store[Symbol.dispose]();
  });

  it('gives up waiting when it is told to', async () => {
    const store = new ObjectStore({ ...config, endpoint: 'http://127.0.0.1:9' });
    const ready = waitForStorage(store, recordingLog().log, { createBucket: true, signal: AbortSignal.timeout(300) });
    await expect(ready).rejects.toThrow(/timeout/);
    store[Symbol.dispose]();
  });

  it('a bucket that is missing is made where that is allowed, any number of times', async () => {
    const store = new ObjectStore({ ...config, bucket: 'made-here' });
    const options = { createBucket: true, signal: never };
    await Promise.all([
      waitForStorage(store, recordingLog().log, options),
      waitForStorage(store, recordingLog().log, options),
    ]);
    await waitForStorage(store, recordingLog().log, { createBucket: false, signal: never });
    store[Symbol.dispose]();
  });

  it('a bucket that is missing is an error with the remedy where it is not', async () => {
    expect((await refusal({ bucket: 'not-there' })).message).toMatch(
      /NoSuchBucket.*create it, or name another with GYMBUS_BUCKET/,
    );
  });

  it.each([
    [
      'a wrong key',
      { accessKeyId: 'somebody', secretAccessKey: 'x' },
      /(InvalidAccessKeyId|UserNotFound).*check AWS_ACCESS_KEY_ID/,
    ],
    [
      'a wrong secret',
      { accessKeyId: 'gymbus', secretAccessKey: 'x' },
      /SignatureDoesNotMatch.*check AWS_ACCESS_KEY_ID/,
    ],
  ])('%s is an error with the remedy, and the secret is not in it', async (_, credentials, message) => {
    const error = await refusal({ credentials }, true);
    expect(error.message).toMatch(message);
    expect(JSON.stringify(error)).not.toContain('secretAccessKey');
  });

  it('a plain endpoint asked for TLS is an error with the remedy', async () => {
    const error = await refusal({ endpoint: server.endpoint.replace('http:', 'https:') });
    expect(error.message).toMatch(/does not speak TLS/);
  });
});

it('an endpoint that is no URL is refused by its name', () => {
  for (const endpoint of ['127.0.0.1:9000', 's3.example', 'ftp://x', '']) {
    expect(() => new ObjectStore({ ...config, endpoint }), endpoint).toThrow(/AWS_ENDPOINT_URL=.* is no URL of S3/);
  }
});

describe('an input of a job', () => {
  let store: ObjectStore;
  beforeAll(async () => {
    store = new ObjectStore(config);
    await waitForStorage(store, recordingLog().log, { createBucket: true, signal: never });
    await store.put('inputs/night-42/data/table.csv', Buffer.from('a,b\n'), 'text/csv');
    await store.put('inputs/other/secret.txt', Buffer.from('no'), 'text/plain');
  });
  afterAll(() => store[Symbol.dispose]());

  const read = (key: string, maxBytes = 1e6) => readInput(store, 'night-42', key, maxBytes, { signal: never });

  it('is read by its key', async () => {
    expect((await read('inputs/night-42/data/table.csv')).toString()).toBe('a,b\n');
  });

  it.each(['inputs/other/secret.txt', 'inputs/night-42/../other/secret.txt', 'batches/night-42/jobs/j/result.json'])(
    'of another batch is refused: %s',
    async (key) => {
      await expect(read(key)).rejects.toThrow(/is not a file under inputs\/night-42\//);
    },
  );

  it("that is missing, or too large, is the job's fault and says so", async () => {
    const missing = read('inputs/night-42/nothing.txt');
    await expect(missing).rejects.toThrow(SetupError);
    await expect(missing).rejects.toThrow(/s3:\/\/gymbus\/inputs\/night-42\/nothing.txt does not exist/);
    await expect(read('inputs/night-42/data/table.csv', 3)).rejects.toThrow(/has 4 bytes, at most 3/);
  });

  it('when S3 is away is no fault of the job', async () => {
    const away = new ObjectStore({ ...config, endpoint: 'http://127.0.0.1:9', patienceMs: 300 });
    const reading = readInput(away, 'night-42', 'inputs/night-42/data/table.csv', 1e6, { signal: never });
    await expect(reading).rejects.toMatchObject({ name: 'StorageAway' });
    away[Symbol.dispose]();
  });
});
