import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { objectKeys } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob, slowJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { attemptEnds, expectSettled } from '../support/settled.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';

describe.skipIf(!available('fault'))('a server that goes away in the middle of an episode', () => {
  let gym: TestGym;
  let network: TcpProxy;
  let runner: RunnerProcess;
  beforeAll(async () => {
    gym = await openGym();
    network = await startTcpProxy(gym.nats.port);
    runner = await gym.start('away', { NATS_URL: `nats://127.0.0.1:${network.port}` });
  });
  beforeEach(() => {
    Object.assign(network, { up: 'pass', down: 'pass', onUp: () => undefined });
    gym.proxy.rule = () => undefined;
  });
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    await network?.[Symbol.asyncDispose]();
  });

  it('S3 killed and back: played on meanwhile, everything stored, one outcome', async () => {
    const job = slowJob('no-s3');
    const since = runner.lines.length;
    await gym.publish(job);
    await gym.events.next('no-s3', 'step');
    await gym.s3.kill();
    // It plays to the end, and only then has to wait.
    await gym.events.next('no-s3', 'evaluating');
    await runner.logged('S3 does not take trajectories; they are kept on disk meanwhile', { since });
    const [started] = gym.events.of('no-s3', 'started');
    await eventually(async () => !(await runner.machines()).some(({ uuid }) => uuid === started?.data.replica), 60_000);
    await gym.s3.start();
    await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 1, steps: 3 });
    await runner.logged('S3 takes trajectories again', { since });
  });

  it('S3 that does not hand out an input: given back without an attempt spent, played when it does', async () => {
    const job = quickJob('no-input', {
      setup: [{ type: 'upload_file', parameters: { files: [{ path: '/tmp/input', s3_key: 'input.txt' }] } }],
      retry: { max_attempts: 1 },
    });
    const { endpoint, credentials } = gym.s3;
    const s3 = new S3Client({ endpoint, credentials, region: 'us-east-1', forcePathStyle: true });
    const Key = `${objectKeys.inputs('no-input')}input.txt`;
    await s3.send(new PutObjectCommand({ Bucket: 'gymbus', Key, Body: 'input' }));
    s3.destroy();
    gym.proxy.rule = ({ path: at }) =>
      at.includes('/inputs/') ? { kind: 'status', status: 403, code: 'AccessDenied' } : undefined;
    await gym.publish(job);
    const { data } = await gym.events.next('no-input', 'retrying');
    expect(data).toMatchObject({ class: 'storage', message: expect.stringContaining('AccessDenied') });
    gym.proxy.rule = () => undefined;
    await expectSettled(gym, job);
    const ends = await attemptEnds(gym, job);
    expect(ends.at(-1)).toBe('played');
    expect(new Set(ends.slice(0, -1))).toEqual(new Set(['storage']));
  });

  it('NATS killed and back: played on meanwhile, committed by the same attempt', async () => {
    await using file = await holdFile();
    const job = slowJob('no-nats', { setup: [file.step] });
    const since = runner.lines.length;
    // On a busy machine the server may be away for longer than a lease usually lasts.
    await gym.leaseOf('no-nats', 120_000);
    await gym.publish(job);
    await file.asked();
    await gym.nats.kill();
    await runner.logged('connection to NATS lost; reconnecting', { since });
    file.release();
    const [started] = gym.events.of('no-nats', 'started');
    await eventually(async () => !(await runner.machines()).some(({ uuid }) => uuid === started?.data.replica), 60_000);
    await gym.nats.start();
    await runner.logged('connected to NATS again', { since });
    await eventually(() => gym.bus.connected, 30_000);
    const result = await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 1, steps: 3 });
    expect(result.attempt).toBe(started?.attempt);
    expect(gym.events.of('no-nats', 'started')).toHaveLength(1);
  });

  it('the answer to its commit lost: it finds that the outcome is its own', async () => {
    const job = quickJob('no-answer');
    const since = runner.lines.length;
    const sent = new Promise<void>((resolve) => {
      network.onUp = (bytes) => {
        if (!bytes.includes('PUB gymbus.results.no-answer.')) return;
        network.onUp = () => undefined;
        network.down = 'drop';
        resolve();
      };
    });
    await gym.publish(job);
    await sent;
    const subject = gym.bus.names.resultSubject('no-answer', 'one');
    const stored = () => gym.bus.jsm.streams.getMessage(gym.bus.names.resultsStream, { last_by_subj: subject });
    await eventually(async () => (await stored()) !== null);
    network.cut();
    network.down = 'pass';
    const result = await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 1 });
    expect(await runner.logged('job', { batch: 'no-answer' })).toMatchObject({
      end: 'committed',
      attempt: result.attempt,
    });
    expect(runner.lines.slice(since).map(({ msg }) => msg)).not.toContain('commit refused: another outcome was first');
  });

  it('and afterwards all is as it was', async () => {
    const job = quickJob('afterwards');
    await gym.publish(job);
    await expectSettled(gym, job);
    await runner.stop();
  });
});
