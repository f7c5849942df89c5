import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readRunners } from '../../runner/bus/heartbeat.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob, slowJob } from '../support/fault-jobs.ts';
import { addressOf, openGym, type TestGym } from '../support/gym.ts';
import { holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { attemptEnds, expectSettled } from '../support/settled.ts';

describe.skipIf(!available('fault'))('a runner told to stop', () => {
  let gym: TestGym;
  /** Takes what is given back; asleep until then. */
  let other: RunnerProcess;
  beforeAll(async () => {
    gym = await openGym();
    other = await gym.start('other');
    other.freeze();
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  async function inQueue(job: TrajectoryJobInput): Promise<boolean> {
    const { bus } = gym;
    return (await lastStored(bus, bus.names.jobsStream, bus.names.jobSubject(addressOf(job)))) !== null;
  }

  /** The job given back is played by the other runner, at once and as if for the first time. */
  async function expectTakenUp(job: TrajectoryJobInput): Promise<void> {
    expect(await inQueue(job)).toBe(true);
    expect(await attemptEnds(gym, job)).toEqual(['host']);
    other.thaw();
    // Well before a lease's time: it was given back, not left.
    await gym.events.next(job.batch_id, 'started', { n: 2, withinMs: 20_000 });
    await expectSettled(gym, job, { status: 'completed', score: 1, runner: other.id });
    other.freeze();
  }

  it('lets the job under way end, takes no other, and leaves', async () => {
    const runner = await gym.start('drain');
    const job = slowJob('drained');
    const next = quickJob('drained', { job_id: 'next' });
    await gym.publish(job);
    await gym.events.next('drained', 'setup');
    await gym.publish(next);
    runner.terminate();
    await eventually(async () => (await readRunners(gym.bus)).some(({ state }) => state === 'draining'));
    await runner.ended();
    await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 1, runner: runner.id });
    expect(await inQueue(next)).toBe(true);
    expect((await readRunners(gym.bus)).map((status) => status.runner)).not.toContain(runner.id);
    other.thaw();
    await expectSettled(gym, next, { status: 'completed', attempts: 1, runner: other.id });
    other.freeze();
  });

  it('gives a job back that takes longer than its budget', async () => {
    const runner = await gym.start('drain', { GYMBUS_DRAIN_S: '1' });
    await using file = await holdFile();
    const job = quickJob('given-back', { setup: [file.step] });
    await gym.publish(job);
    await file.asked();
    await runner.stop();
    expect(await runner.logged('job', { batch: 'given-back' })).toMatchObject({ end: 'returned', class: 'host' });
    file.release();
    await expectTakenUp(job);
  });

  it('told so twice, gives it back at once', async () => {
    const runner = await gym.start('drain', { GYMBUS_DRAIN_S: '600' });
    await using file = await holdFile();
    const job = quickJob('hurried', { setup: [file.step] });
    await gym.publish(job);
    await file.asked();
    runner.terminate();
    await eventually(async () => (await readRunners(gym.bus)).some(({ state }) => state === 'draining'));
    await runner.stop();
    file.release();
    await expectTakenUp(job);
  });

  it('while S3 is away, gives back what it played and could not store', async () => {
    const runner = await gym.start('drain', { GYMBUS_DRAIN_S: '1' });
    const job = quickJob('stop-without-s3');
    await gym.s3.kill();
    await gym.publish(job);
    await gym.events.next('stop-without-s3', 'evaluating');
    await runner.logged('S3 does not take trajectories; they are kept on disk meanwhile');
    await runner.stop();
    await gym.s3.start();
    await expectTakenUp(job);
  });

  it('while NATS does not answer, leaves all the same', async () => {
    const runner = await gym.start('drain', { GYMBUS_DRAIN_S: '1' });
    await using file = await holdFile();
    const job = quickJob('stop-without-nats', { setup: [file.step] });
    await gym.leaseOf('stop-without-nats', 5_000);
    await gym.publish(job);
    await file.asked();
    gym.nats.freeze();
    // Long enough for its connection to be lost, and for new ones that nobody answers.
    await runner.logged('connection to NATS lost; reconnecting');
    try {
      await runner.stop();
    } finally {
      gym.nats.thaw();
    }
    await eventually(() => gym.bus.connected, 30_000);
    file.release();
    other.thaw();
    await expectSettled(gym, job, { status: 'completed', score: 1, runner: other.id });
  });
});
