import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildImage } from '../../images/build.ts';
import { findRecipe } from '../../images/recipes.ts';
import { readImage } from '../../images/store.ts';
import { batchOf } from '../../infra/demo/batch.ts';
import { OFFICE_JOBS } from '../../infra/demo/office.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { hashesOf } from '../support/made-up-image.ts';
import { cacheDir } from '../support/nats.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { expectSettled, settled } from '../support/settled.ts';

/** An image of 1.3 GB built, sent and fetched, its template booted with each application started once. */
const START_MS = 40 * 60_000;
/** Four episodes, two at a time. */
const PLAY_MS = 30 * 60_000;

/** A host that has only what the bucket has: the image comes from there, then its jobs are played. */
describe.skipIf(!available('vm') || !available('reflink'))('the office image', () => {
  let gym: TestGym;
  let cache: string;
  let runner: RunnerProcess;
  let jobs: TrajectoryJobInput[];

  beforeAll(async () => {
    const image = await buildImage(findRecipe('office'), { cacheDir });
    gym = await openGym();
    cache = await mkdtemp(path.join(os.tmpdir(), 'gymbus-office-'));
    await gym.store.createBucket();
    const pushed = await gym.cli('image', 'push', `office@${image.digest}`);
    expect(pushed.exitCode, pushed.stderr).toBe(0);
    jobs = batchOf('office', 'office', OFFICE_JOBS);
    for (const job of jobs) await gym.publish(job);
    runner = gym.spawn('office', {
      ...{ GYMBUS_CACHE: cache, GYMBUS_IMAGES: `office@${image.digest}` },
      ...{ GYMBUS_ACTING: '2', GYMBUS_READY: '2' },
    });
    await runner.logged('runner is ready', { withinMs: START_MS });
    const fetched = await readImage(path.join(cache, 'images/office', image.digest.slice(0, 16)));
    expect(await hashesOf(fetched?.directory ?? '')).toEqual(await hashesOf(image.directory));
  }, START_MS);
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    if (cache) await rm(cache, { recursive: true, force: true });
  });

  it('was fetched once from the bucket by the runner that needs it', async () => {
    const told = runner.lines.filter(({ msg }) => /image.*fetch/.test(msg)).map(({ msg }) => msg);
    expect(told).toEqual(['image is not in the cache: fetching', 'image fetched']);
  });

  it.each(OFFICE_JOBS.map(({ job, expect: wanted }) => [job.job_id, wanted] as const))(
    '%s is played and scored',
    async (id, wanted) => {
      const job = jobs.find(({ job_id }) => job_id === id);
      if (!job) throw new Error(`no job ${id}`);
      await settled(gym, job, PLAY_MS);
      const pictures = process.env.GYMBUS_TEST_PICTURES;
      if (pictures) await execa('cp', ['-a', path.join(gym.s3.folder, 'gymbus/batches/office/jobs', id), pictures]);
      await expectSettled(gym, job, { ...wanted, valid: true, attempts: 1, failure: null });
    },
    PLAY_MS,
  );
});
