import { DeleteObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { updateBatch } from '../../runner/bus/batch-flags.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import { HEADERS, objectKeys, type TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { addressOf, openGym, type TestGym } from '../support/gym.ts';
import { holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import { attemptEnds, expectSettled, expectWhole, settled } from '../support/settled.ts';

const SUBJECT_FULL = 10077;

describe.skipIf(!available('fault'))('a job that comes again', () => {
  let gym: TestGym;
  beforeAll(async () => {
    gym = await openGym();
    await gym.start('again');
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  async function inQueue(job: TrajectoryJobInput): Promise<boolean> {
    const { bus } = gym;
    return (await lastStored(bus, bus.names.jobsStream, bus.names.jobSubject(addressOf(job)))) !== null;
  }

  async function deadLetter(job: TrajectoryJobInput) {
    const { bus } = gym;
    return lastStored(bus, bus.names.deadStream, bus.names.deadSubject(addressOf(job)));
  }

  it('published twenty times at once, each with another id: in the queue once, played once', async () => {
    await using file = await holdFile();
    const job = quickJob('twice', { setup: [file.step] });
    const publishes = await Promise.allSettled(Array.from({ length: 20 }, (_, n) => gym.publish(job, { n: n + 1 })));
    expect(publishes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    for (const publish of publishes) {
      if (publish.status === 'rejected') expect(publish.reason).toMatchObject({ code: SUBJECT_FULL });
    }
    await file.asked();
    await expect(gym.publish(job, { n: 99 }), 'while it is played').rejects.toMatchObject({ code: SUBJECT_FULL });
    file.release();
    await expectSettled(gym, job);
    expect(gym.events.of('twice', 'started')).toHaveLength(1);
  });

  it('published again after a server restart: refused while it waits, found done when it is', async () => {
    const waiting = quickJob('restart', { job_id: 'waiting', image: 'win-11' });
    const done = quickJob('restart', { job_id: 'done' });
    await gym.publish(waiting);
    await gym.publish(done);
    const { seq } = await settled(gym, done);
    expect(await gym.publish(done), 'the server remembers the id').toMatchObject({ duplicate: true });

    await gym.nats.kill();
    await gym.nats.start();
    await eventually(() => gym.bus.connected, 30_000);
    await expect(gym.publish(waiting, { n: 1 })).rejects.toMatchObject({ code: SUBJECT_FULL });
    // Whether the server still knows the id or not: nothing is played again.
    await gym.publish(done);
    expect((await settled(gym, done)).seq).toBe(seq);
    await gym.publish(done, { n: 1 });
    expect((await settled(gym, done)).seq).toBe(seq);
    expect(gym.events.of('restart', 'started')).toHaveLength(1);
    expect(await inQueue(waiting)).toBe(true);
  });

  it('with another body after it is done: a dead letter, and its outcome stays', async () => {
    const job = quickJob('reused');
    await gym.publish(job);
    const { seq, result } = await settled(gym, job);
    const other = { ...job, instruction: 'Something else.' };
    await gym.publish(other, { n: 1, headers: { 'X-Sender': 'me' } });
    await eventually(async () => (await deadLetter(job)) !== null && !(await inQueue(job)), 60_000);
    const letter = await deadLetter(job);
    expect(JSON.parse(Buffer.from(letter?.data ?? []).toString())).toEqual(other);
    expect(letter?.headers.get(HEADERS.class)).toBe('job_id_reused');
    expect(letter?.headers.get('X-Sender')).toBe('me');
    expect(letter?.headers.get(HEADERS.reason)).toContain(`has an outcome (completed, attempt ${result.attempt})`);
    expect(await settled(gym, job)).toEqual({ seq, result });
    expect(gym.events.of('reused', 'started')).toHaveLength(1);
  });

  it('redelivered when it is done: what follows a commit is done again, and nothing is played', async () => {
    const job = quickJob('redone');
    await gym.publish(job);
    const before = await settled(gym, job);
    const Key = objectKeys.result(job.batch_id, job.job_id);
    const { endpoint, credentials } = gym.s3;
    const s3 = new S3Client({ endpoint, credentials, region: 'us-east-1', forcePathStyle: true });
    await s3.send(new DeleteObjectCommand({ Bucket: 'gymbus', Key }));
    s3.destroy();
    expect(await gym.store.head(Key)).toBeNull();
    await gym.publish(job, { n: 1 });
    await expectSettled(gym, job);
    expect(await settled(gym, job)).toEqual(before);
    expect(gym.events.of('redone', 'started')).toHaveLength(1);
  });

  it('with Gymbus-Supersedes: played again, and its outcome replaces the one named', async () => {
    const job = quickJob('retried', { evaluator: { func: 'infeasible' } });
    await gym.publish(job);
    const first = await settled(gym, job);
    expect(first.result).toMatchObject({ status: 'completed', score: 0 });
    const better = quickJob('retried');
    await gym.publish(better, { n: 1, headers: { [HEADERS.supersedes]: String(first.seq) } });
    const second = await settled(gym, better);
    expect(second.seq).toBeGreaterThan(first.seq);
    expect(second.result).toMatchObject({ status: 'completed', score: 1, attempts: 1 });
    expect(second.result.attempt).not.toBe(first.result.attempt);
    // Both trajectories are there; result.json is of the one that stands.
    await expectWhole(gym, job, first.result.attempt ?? '');
    await expectWhole(gym, better, second.result.attempt ?? '');
    const copy = await gym.store.get(objectKeys.result('retried', 'one'), 1 << 20);
    expect(JSON.parse(copy.toString())).toEqual(second.result);

    // The same retry again is one whose outcome stands; naming an outcome that is no more does not bring it back.
    await gym.publish(better, { n: 2, headers: { [HEADERS.supersedes]: String(first.seq) } });
    expect(await settled(gym, better)).toEqual(second);
    expect(gym.events.of('retried', 'started')).toHaveLength(2);
  });

  it('with a Gymbus-Supersedes that names nothing: dead, and told why', async () => {
    const number = quickJob('fences', { job_id: 'number' });
    const word = quickJob('fences', { job_id: 'word' });
    await gym.publish(number, { headers: { [HEADERS.supersedes]: '123456' } });
    await gym.publish(word, { headers: { [HEADERS.supersedes]: 'the last one' } });
    const dead = { status: 'dead', attempts: 0 } as const;
    expect((await expectSettled(gym, number, dead)).failure?.message).toContain('names outcome 123456');
    expect((await expectSettled(gym, word, dead)).failure?.message).toContain('got "the last one"');
  });

  it('a cancelled batch: the one being played ends, those in the queue are not begun, all are recorded', async () => {
    await using file = await holdFile();
    const jobs = ['a', 'b', 'c'].map((job_id) => quickJob('cancelled', { job_id, setup: [file.step] }));
    for (const job of jobs) await gym.publish(job);
    await file.asked();
    await updateBatch(gym.bus, 'cancelled', { cancelled: true });
    const results = [];
    for (const job of jobs)
      results.push(await expectSettled(gym, job, { status: 'cancelled', valid: false, score: null }));
    const [started] = gym.events.of('cancelled', 'started');
    const played = results.find(({ job_id }) => job_id === started?.job_id);
    expect(played).toMatchObject({ attempt: started?.attempt, attempts: 1, failure: { class: 'cancelled' } });
    for (const result of results.filter((other) => other !== played)) {
      expect(result).toMatchObject({ attempt: null, attempts: 0, trajectory: null });
    }
    expect(gym.events.of('cancelled', 'started')).toHaveLength(1);
    expect(await attemptEnds(gym, quickJob('cancelled', { job_id: started?.job_id ?? '' }))).toEqual(['cancelled']);
  });
});
