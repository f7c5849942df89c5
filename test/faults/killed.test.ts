import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openRunRoot } from '../../runner/replica/run-root.ts';
import { attemptFiles, objectKeys, type TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob, slowJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { type HeldFile, holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import type { Fault } from '../support/s3-proxy.ts';
import { attemptEnds, expectSettled, expectWhole } from '../support/settled.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';

/** How long a killed runner's job is nobody's: short, for the test's sake. */
const ACK_WAIT_MS = 5_000;
const GONE_MS = 10_000;

interface Point {
  job: TrajectoryJobInput;
  /** Resolves when the victim is exactly there. */
  reached: (job: TrajectoryJobInput) => Promise<unknown>;
  /** Whether an outcome stands already when it is killed. */
  committed: boolean;
}

describe.skipIf(!available('fault'))('a runner killed with SIGKILL, another beside it', () => {
  let gym: TestGym;
  let network: TcpProxy;
  let file: HeldFile;
  let bystander: RunnerProcess;
  let victim: RunnerProcess;
  const long = quickJob('bystander');

  const startVictim = () => gym.start('victim', { NATS_URL: `nats://127.0.0.1:${network.port}` });
  const uuids = async (runner: RunnerProcess) => (await runner.machines()).map(({ uuid }) => uuid).sort();
  const ownedBy = (runner: RunnerProcess, what: 'replicas' | 'spool'): Promise<string[]> =>
    readdir(path.join(gym.area.path, 'runners', runner.id, what)).catch(() => []);

  beforeAll(async () => {
    gym = await openGym();
    network = await startTcpProxy(gym.nats.port);
    file = await holdFile();
    bystander = await gym.start('bystander');
    // It plays one long job all the while, so that it is the victim who is given all the others.
    long.setup = [file.step];
    long.limits = { setup_s: 1_800, total_s: 1_800 };
    await gym.publish(long);
    await file.asked();
    victim = await startVictim();
  });
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    await file?.[Symbol.asyncDispose]();
    await network?.[Symbol.asyncDispose]();
  });

  beforeEach(() => healAll());
  function healAll(): void {
    network.cut();
    Object.assign(network, { up: 'pass', down: 'pass', onUp: () => undefined });
    gym.proxy.rule = () => undefined;
  }

  /** Spoils the put of one file of a job from now on. @returns resolves when it is asked for */
  function spoil(job: TrajectoryJobInput, name: string, fault: Fault): Promise<void> {
    const folder = `/gymbus/${objectKeys.job(job.batch_id, job.job_id)}`;
    return new Promise((resolve) => {
      gym.proxy.rule = ({ method, path: at }) => {
        const [key = ''] = at.split('?');
        if (method !== 'PUT' || !key.startsWith(folder) || !key.endsWith(name)) return undefined;
        resolve();
        return fault;
      };
    });
  }
  const forever: Fault = { kind: 'hold', until: new Promise(() => undefined) };

  /** Stops the victim's bytes in one direction as soon as it sends this. @returns resolves when it did */
  function interrupt(text: string, direction: 'up' | 'down'): Promise<void> {
    return new Promise((resolve) => {
      network.onUp = (bytes) => {
        if (!bytes.includes(text)) return;
        network.onUp = () => undefined;
        network[direction] = 'drop';
        resolve();
      };
    });
  }

  async function manifestStored(job: TrajectoryJobInput): Promise<boolean> {
    for await (const { key } of gym.store.list(objectKeys.job(job.batch_id, job.job_id))) {
      if (key.endsWith(attemptFiles.manifest)) return true;
    }
    return false;
  }

  const points: Record<string, Point> = {
    'in set-up': {
      job: slowJob('kill-setup'),
      reached: ({ batch_id }) => gym.events.next(batch_id, 'setup'),
      committed: false,
    },
    'in a step': {
      job: slowJob('kill-step'),
      reached: ({ batch_id }) => gym.events.next(batch_id, 'step', { n: 2 }),
      committed: false,
    },
    'while evaluating': {
      job: slowJob('kill-evaluate'),
      reached: ({ batch_id }) => gym.events.next(batch_id, 'evaluating'),
      committed: false,
    },
    'while uploading, its episode over': {
      job: quickJob('kill-upload'),
      reached: async (job) => {
        await spoil(job, attemptFiles.screenshot(1), forever);
        const { data } = await gym.events.next(job.batch_id, 'started');
        await eventually(async () => !(await uuids(victim)).includes(String(data.replica)), 30_000);
      },
      committed: false,
    },
    'while putting the manifest': {
      job: quickJob('kill-manifest'),
      reached: (job) => spoil(job, attemptFiles.manifest, forever),
      committed: false,
    },
    'after the manifest': {
      job: quickJob('kill-after-manifest'),
      reached: async (job) => {
        await spoil(job, attemptFiles.manifest, { kind: 'lose_answer' });
        await eventually(() => manifestStored(job), 30_000);
      },
      committed: false,
    },
    'after the commit, before its answer': {
      job: quickJob('kill-commit'),
      reached: async (job) => {
        await interrupt(`PUB gymbus.results.${job.batch_id}.`, 'down');
        const subject = gym.bus.names.resultSubject(job.batch_id, job.job_id);
        await eventually(
          async () =>
            (await gym.bus.jsm.streams.getMessage(gym.bus.names.resultsStream, { last_by_subj: subject })) !== null,
          30_000,
        );
      },
      committed: true,
    },
    'after the commit, before result.json': {
      job: quickJob('kill-result'),
      reached: (job) => spoil(job, 'result.json', forever),
      committed: true,
    },
    'after result.json, before the acknowledgement': {
      job: quickJob('kill-ack'),
      reached: () => interrupt('+ACK', 'up'),
      committed: true,
    },
  };

  async function killAndRestart(): Promise<void> {
    const untouched = await uuids(bystander);
    const owned = await ownedBy(victim, 'replicas');
    const spooled = await ownedBy(victim, 'spool');
    await victim.kill();
    healAll();
    await eventually(async () => (await victim.machines()).length === 0, GONE_MS);

    victim = await startVictim();
    expect(await victim.logged('reaped what an earlier process left behind')).toMatchObject({ replicas: owned.length });
    const now = await ownedBy(victim, 'replicas');
    expect(now.filter((id) => owned.includes(id))).toEqual([]);
    const sockets = await readdir(await openRunRoot());
    expect(sockets.filter((name) => owned.some((id) => id.startsWith(name)))).toEqual([]);
    const still = await ownedBy(victim, 'spool');
    expect(still.filter((id) => spooled.includes(id))).toEqual([]);
    expect(await uuids(bystander), "the other runner's machines").toEqual(untouched);
  }

  it.each(Object.entries(points))('%s: one outcome, everything reaped', async (_, { job, reached, committed }) => {
    await gym.leaseOf(job.batch_id, ACK_WAIT_MS);
    const there = reached(job);
    await gym.publish(job);
    await there;
    await killAndRestart();
    const attempts = committed ? 1 : 2;
    const result = await expectSettled(gym, job, { status: 'completed', valid: true, score: 1, attempts });
    expect(gym.events.of(job.batch_id, 'started')).toHaveLength(attempts);
    const [first] = gym.events.of(job.batch_id, 'started');
    expect(result.attempt === first?.attempt).toBe(committed);
    // Written after the acknowledgement, for the record only.
    if (!committed) await expect.poll(() => attemptEnds(gym, job), { timeout: 30_000 }).toEqual(['open', 'played']);
  });

  it('as often as it may be played: dead, with its history', async () => {
    const job = slowJob('kill-poison', { retry: { max_attempts: 1 } });
    await gym.leaseOf(job.batch_id, ACK_WAIT_MS);
    await gym.publish(job);
    const { attempt } = await gym.events.next(job.batch_id, 'step');
    await killAndRestart();
    const result = await expectSettled(gym, job, { status: 'dead', valid: false, score: null, attempts: 1 });
    expect(result.failure).toMatchObject({
      class: 'poison',
      message: expect.stringContaining(`${attempt} on ${victim.id}: runner lost`),
    });
    expect(gym.events.of(job.batch_id, 'started')).toHaveLength(1);
  });

  it('the other runner played on all the while, and both stop clean', async () => {
    file.release();
    const result = await expectSettled(gym, long, { status: 'completed', score: 1, attempts: 1 });
    expect(result.runner).toBe(bystander.id);
    expect(gym.events.of(long.batch_id, 'started')).toHaveLength(1);
    await Promise.all([victim.stop(), bystander.stop()]);
    expect([...(await ownedBy(victim, 'replicas')), ...(await ownedBy(bystander, 'replicas'))]).toEqual([]);
    expect([...(await ownedBy(victim, 'spool')), ...(await ownedBy(bystander, 'spool'))]).toEqual([]);
    await expectWhole(gym, long, result.attempt ?? '');
  });
});
