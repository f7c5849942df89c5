import { readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEMO_JOBS, type DemoJob, unexpected } from '../../infra/demo/batch.ts';
import { lockFile } from '../../runner/system/lock.ts';
import { Result } from '../../schemas/index.ts';
import { testDataDir } from '../support/gym.ts';
import { cacheDir } from '../support/nats.ts';
import { available } from '../support/requirement.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { looksTheSame, readPlayed } from '../support/trajectory.ts';

/** With an image and a template to be made first. */
const DEMO_MS = 15 * 60_000;
const stackFolder = path.join(testDataDir, 'stack');

/** Played by the command itself; then everything is read as it lies in the bucket. */
describe.skipIf(!available('vm') || !available('reflink'))('gymbus demo', () => {
  let turn: AsyncDisposable | undefined;
  let output = '';
  let batch = '';

  beforeAll(async () => {
    turn = await lockFile(path.join(testDataDir, 'test.lock'), { waitMs: DEMO_MS });
    await rm(stackFolder, { recursive: true, force: true });
    const { exitCode, all } = await execa(process.execPath, [gymbusCommand, 'demo'], {
      ...{ reject: false, all: true, stdin: 'ignore', timeout: DEMO_MS },
      env: {
        ...{ GYMBUS_DATA: testDataDir, GYMBUS_CACHE: cacheDir, GYMBUS_RUNNER_ID: `demo-${process.pid}` },
        // Whatever else is pointed to outside of this test.
        ...{ NATS_URL: '', AWS_ENDPOINT_URL: '', AWS_ACCESS_KEY_ID: '', AWS_SECRET_ACCESS_KEY: '' },
        ...{ GYMBUS_DISK_FLOOR_GIB: '1' },
      },
    });
    output = all;
    expect(exitCode, output).toBe(0);
    batch = /\/batches\/(demo-[0-9]+-[0-9]+)\//.exec(output)?.[1] ?? '';
    expect(batch, output).not.toBe('');
  }, DEMO_MS);

  afterAll(async () => {
    await rm(stackFolder, { recursive: true, force: true });
    await turn?.[Symbol.asyncDispose]();
  });

  const get = (key: string): Promise<Buffer> => readFile(path.join(stackFolder, 's3/gymbus', key));
  const resultOf = async ({ job }: DemoJob): Promise<Result> =>
    Result.parse(JSON.parse((await get(`batches/${batch}/jobs/${job.job_id}/result.json`)).toString()));

  it('tells how each job ended', () => {
    for (const { job, expect: wanted } of DEMO_JOBS) {
      const status = wanted.class ? `${wanted.status} \\(${wanted.class}\\)` : wanted.status;
      expect(output).toMatch(new RegExp(`^${job.job_id} +${status} +${wanted.score ?? '-'} `, 'm'));
    }
    expect(output).toContain(`All ${DEMO_JOBS.length} outcomes are as expected.`);
    expect(output).not.toContain('Warning');
  });

  it.each(DEMO_JOBS.map((demo) => [demo.job.job_id, demo] as const))('%s: its record is whole', async (_, demo) => {
    const result = await resultOf(demo);
    expect(unexpected(demo, result)).toBeNull();
    expect(result).toMatchObject({ batch_id: batch, valid: demo.expect.status === 'completed' });
    const { manifest, steps } = await readPlayed(result, get);
    expect(manifest.outcome).toEqual(result);
    const reset = result.status === 'completed' ? 1 : 0;
    expect(steps.map(({ step }) => step.step)).toEqual(Array.from({ length: result.steps + reset }, (_, n) => n));
    for (const { step } of steps) expect({ ...step, actions: [] }).toMatchObject({ maybe_delivered: [], rejected: [] });
  });

  it.each(DEMO_JOBS.map((demo) => [demo.job.job_id, demo] as const))(
    '%s: each action shows, and nothing else does',
    async (_, demo) => {
      const { steps } = await readPlayed(await resultOf(demo), get);
      for (const [index, step] of steps.entries()) {
        const before = steps[index - 1];
        const [action] = step.step.actions;
        if (before === undefined || action === undefined || action.type === 'wait') continue;
        const ends = action.type === 'done' || action.type === 'fail';
        expect(looksTheSame(before, step), `step ${index}: ${JSON.stringify(action)}`).toBe(ends);
      }
    },
  );

  it('plays a set-up that fails as often as it may, each time on a fresh replica', async () => {
    const demo = DEMO_JOBS.find(({ expect: wanted }) => wanted.class === 'setup');
    if (!demo) throw new Error('no such job');
    const result = await resultOf(demo);
    expect(result).toMatchObject({ attempts: 2, steps: 0, score: null, reward: null, valid: false });
    expect(
      await readdir(path.join(stackFolder, `s3/gymbus/batches/${batch}/jobs/${demo.job.job_id}/attempts`)),
    ).toHaveLength(2);
  });
});
