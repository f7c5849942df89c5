import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { readAttempts } from '../../runner/bus/attempts.ts';
import { type Outcome, readOutcome } from '../../runner/bus/outcomes.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import { readManifest } from '../../runner/storage/reader.ts';
import { type Manifest, objectKeys, type Result, type TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from './bus-jobs.ts';
import type { TestGym } from './gym.ts';

const SETTLED_MS = 120_000;
const MOST_BYTES = 64 << 20;

/** Waits until a job is out of the queue, which is after everything else that an outcome brings. @returns its outcome */
export async function settled(gym: TestGym, job: TrajectoryJobInput, withinMs = SETTLED_MS): Promise<Outcome> {
  const { bus } = gym;
  const subject = bus.names.jobSubject({ image: job.image, batch: job.batch_id, job: job.job_id });
  await eventually(async () => (await lastStored(bus, bus.names.jobsStream, subject)) === null, withinMs).catch(
    (error: Error) => {
      throw new Error(`${job.batch_id}/${job.job_id} is not settled: ${error.message}\n${gym.tails()}`);
    },
  );
  const outcome = await readOutcome(bus, job.batch_id, job.job_id);
  if (outcome === null) throw new Error(`${job.batch_id}/${job.job_id} left the queue without an outcome`);
  return outcome;
}

/**
 * Waits until a job is settled and checks all that must hold then: one outcome that nobody replaces, `result.json` the same,
 * a manifest whose objects are there with the bytes it says.
 */
export async function expectSettled(
  gym: TestGym,
  job: TrajectoryJobInput,
  expected: Partial<Result> = { status: 'completed', valid: true, score: 1 },
): Promise<Result> {
  const { seq, result } = await settled(gym, job);
  expect(result).toMatchObject(expected);
  const copy = await gym.store.get(objectKeys.result(job.batch_id, job.job_id), MOST_BYTES);
  expect(JSON.parse(copy.toString()), 'result.json').toEqual(result);
  if (result.trajectory !== null) {
    const manifest = await expectWhole(gym, job, result.attempt ?? '');
    expect(manifest.outcome).toEqual(result);
  }
  // Committed once: every commit that was let in raised the subject's sequence.
  expect((await readOutcome(gym.bus, job.batch_id, job.job_id))?.seq).toBe(seq);
  expect(commitsOf(gym, job), 'commits told of').toBeLessThanOrEqual(1);
  return result;
}

/** Checks every object of a finished attempt against its manifest. */
export async function expectWhole(gym: TestGym, job: TrajectoryJobInput, attempt: string): Promise<Manifest> {
  const prefix = objectKeys.attempt(job.batch_id, job.job_id, attempt);
  const manifest = await readManifest(gym.store, prefix);
  if (manifest === null) throw new Error(`${prefix} has no manifest`);
  for (const { key, bytes, sha256 } of manifest.objects) {
    const body = await gym.store.get(key, MOST_BYTES);
    expect({ key, bytes: body.byteLength, sha256: createHash('sha256').update(body).digest('hex') }).toEqual({
      ...{ key, bytes, sha256 },
    });
  }
  return manifest;
}

/** How each attempt of a job ended, in order: its class, `played` or `open`. */
export async function attemptEnds(gym: TestGym, job: TrajectoryJobInput): Promise<string[]> {
  const history = await readAttempts(gym.bus, job.batch_id, job.job_id);
  return (history?.attempts ?? []).map(({ ended_at, class: ended }) =>
    ended_at === null ? 'open' : (ended ?? 'played'),
  );
}

function commitsOf({ events }: TestGym, { batch_id, job_id }: TrajectoryJobInput): number {
  const kinds = ['committed', 'dead', 'cancelled'] as const;
  return kinds.flatMap((kind) => events.of(batch_id, kind)).filter((event) => event.job_id === job_id).length;
}
