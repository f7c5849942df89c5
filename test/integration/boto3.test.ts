import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { SCHEMA_FOLDER } from '../../schemas/export.ts';
import { ensurePython } from '../support/python.ts';
import { never, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { sampleJob, sampleResult, sampleStep } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

let python: string;
const script = (name: string): string => path.join(import.meta.dirname, name);

beforeAll(async () => {
  python = await ensurePython();
}, 300_000);

describe('boto3', () => {
  let server: Awaited<ReturnType<typeof startVersitygw>>;
  let place: TestPlace;
  let prefix: string;

  const read = () =>
    execa(python, [script('read_trajectory.py'), 'gymbus', prefix], {
      reject: false,
      timeout: 30_000,
      env: {
        AWS_ENDPOINT_URL: server.endpoint,
        AWS_ACCESS_KEY_ID: server.credentials.accessKeyId,
        AWS_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
        AWS_REGION: 'us-east-1',
        AWS_EC2_METADATA_DISABLED: 'true',
      },
    });

  beforeAll(async () => {
    server = await startVersitygw();
    place = await openPlace(server);
    await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
    await using recording = await place.begin();
    for (let step = 0; step <= 3; step++) await recordStep(recording, step);
    await recording.setup({ index: 0, type: 'execute' });
    await recording.finish({ outcome: sampleResult(recording.address), versions: {} }, never);
    prefix = recording.url.replace('s3://gymbus/', '');
  });
  afterAll(async () => {
    await place?.[Symbol.asyncDispose]();
    await server?.stop();
  });

  it('reads a trajectory and hashes it again by the manifest', async () => {
    const { stdout, stderr } = await read();
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual({ objects: 7, steps: 4, score: 1 });
  });

  it('finds an object that was changed', async () => {
    const key = `${prefix}step-0002.png`;
    const bytes = await place.store.get(key, 1 << 20);
    bytes[100] = (bytes[100] ?? 0) ^ 1;
    await place.store.put(key, bytes, 'image/png');
    const { exitCode, stderr } = await read();
    expect(exitCode).toBe(1);
    expect(stderr).toContain('step-0002.png: another sha256');
  });
});

describe('a stock JSON Schema validator', () => {
  const validate = async (schema: string, documents: unknown[]): Promise<(string | null)[]> => {
    const { stdout } = await execa(python, [script('validate_schema.py'), path.join(SCHEMA_FOLDER, schema)], {
      input: JSON.stringify(documents),
      timeout: 30_000,
    });
    return JSON.parse(stdout);
  };

  it('takes the jobs that a runner takes and refuses those it refuses', async () => {
    const good = [sampleJob(), sampleJob({ limits: { max_steps: 3 }, evaluator: { func: 'infeasible' } })];
    const bad = [
      { ...sampleJob(), colour: 'red' },
      { ...sampleJob(), job_id: 'a.b' },
      { ...sampleJob(), instruction: 42 },
      { ...sampleJob(), policy: { name: 'scripted', parms: {} } },
    ];
    const errors = await validate('job.v1.json', [...good, ...bad]);
    expect(errors.slice(0, good.length)).toEqual([null, null]);
    expect(errors.slice(good.length)).toEqual([
      expect.stringContaining('colour'),
      expect.stringContaining('$.job_id'),
      expect.stringContaining('$.instruction'),
      expect.stringContaining('parms'),
    ]);
  });

  it('takes a step and a result, with fields of later versions', async () => {
    const address = { batch: 'b', job: 'j', attempt: '1-abcdefgh' };
    const screenshot = { key: 'k', bytes: 1, sha256: 'a'.repeat(64), width: 1, height: 1 };
    expect(await validate('step.v1.json', [{ ...sampleStep(address, 1, screenshot), later: 1 }])).toEqual([null]);
    expect(await validate('result.v1.json', [{ ...sampleResult(address), later: 1 }])).toEqual([null]);
  });
});
