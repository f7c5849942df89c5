import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, statfs, truncate, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { readRunners } from '../../runner/bus/heartbeat.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { addressOf, openGym, type TestGym, testDataDir } from '../support/gym.ts';
import { holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { attemptEnds, expectSettled } from '../support/settled.ts';

const mib = 2 ** 20;
const gib = 2 ** 30;
/** Of the file system under the storage area: template, spool and a floor of 1 GiB find room in it. */
const HOST_BYTES = 12 * gib;

/** A host with a small disk of its own, so that filling it is nobody else's trouble. */
async function makeSmallHost(): Promise<{ dataDir: string; remove(): Promise<void> }> {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-room-'));
  const disk = path.join(folder, 'disk');
  const dataDir = path.join(folder, 'host');
  await mkdir(dataDir);
  await writeFile(disk, '');
  await truncate(disk, HOST_BYTES);
  await execa('mkfs.ext4', ['-q', '-m', '0', disk]);
  await execa('mount', ['-o', 'loop', disk, dataDir]);
  // With the template in it; without one, or while others use it, it is made anew.
  const area = path.join(testDataDir, 'area.xfs');
  const inUse = (await execa('mountpoint', ['-q', path.join(testDataDir, 'area')], { reject: false })).exitCode === 0;
  if (existsSync(area) && !inUse) {
    const copy = path.join(dataDir, 'area.xfs');
    await execa('cp', ['--sparse=always', area, copy]);
    // Two file systems of the same identity cannot be mounted at once.
    await execa('xfs_admin', ['-U', 'generate', copy]);
  }
  return {
    dataDir,
    async remove() {
      // The loop device over it is let go of a moment after what was mounted from it.
      await eventually(async () => (await execa('umount', [dataDir], { reject: false })).exitCode === 0, 15_000);
      await rm(folder, { recursive: true });
    },
  };
}

describe.skipIf(!available('fault') || !available('reflink'))('no room on disk', () => {
  let host: Awaited<ReturnType<typeof makeSmallHost>>;
  let gym: TestGym;
  let runner: RunnerProcess;
  beforeAll(async () => {
    host = await makeSmallHost();
    gym = await openGym({ dataDir: host.dataDir });
    runner = await gym.start('room', { GYMBUS_ACTING: '2', GYMBUS_SPOOL_GIB: '0.00005' });
  });
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    await host?.remove();
  });
  beforeEach(() => {
    gym.proxy.rule = () => undefined;
  });

  /** Takes room until no more than so much is left; disposing gives it back. */
  async function fill(where: string, leaving: number): Promise<AsyncDisposable> {
    const folder = path.join(where, 'filling');
    await mkdir(folder);
    const { bavail, bsize } = await statfs(where);
    // A file system keeps some of what it says is free: what does not fit whole is taken in halves.
    let left = bavail * bsize - leaving;
    for (let bytes = left; left > mib && bytes > mib; ) {
      const file = path.join(folder, String(left));
      const { failed } = await execa('fallocate', ['--length', String(bytes), file], { reject: false });
      if (failed) bytes = Math.floor(bytes / 2);
      else left -= bytes;
      bytes = Math.min(bytes, left);
    }
    return { [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) };
  }

  async function inQueue(job: TrajectoryJobInput): Promise<boolean> {
    const { bus } = gym;
    return (await lastStored(bus, bus.names.jobsStream, bus.names.jobSubject(addressOf(job)))) !== null;
  }

  /** It stops pulling and says why, in its log and in its heartbeat. */
  async function expectHolding(since: number, reason: RegExp): Promise<void> {
    expect(await runner.logged('not pulling', { since })).toMatchObject({ reason: expect.stringMatching(reason) });
    await eventually(async () => {
      const [status] = await readRunners(gym.bus);
      return status?.state === 'holding' && reason.test(status.reason ?? '');
    }, 20_000);
  }

  async function expectPullingAgain(since: number): Promise<void> {
    await runner.logged('pulling again', { since });
    await eventually(async () => (await readRunners(gym.bus))[0]?.state === 'running', 20_000);
  }

  it.each([
    ['inside the storage area', () => gym.area.path],
    ['under it', () => host.dataDir],
  ])('%s: no job is pulled and it says so; with room again it goes on', async (where, folder) => {
    const job = quickJob('room', { job_id: where.replaceAll(' ', '-') });
    let since = runner.lines.length;
    await using filling = await fill(folder(), gib / 2);
    await expectHolding(since, /^disk: 0\.5 GiB free, floor is 1\.0 GiB/);
    await gym.publish(job);
    const { stdout } = await gym.cli('watch', 'room', '--once');
    expect(stdout).toMatch(/1 waiting; runner .* is holding: disk: 0\.5 GiB free/);
    expect(await inQueue(job)).toBe(true);
    since = runner.lines.length;
    await filling[Symbol.asyncDispose]();
    await expectPullingAgain(since);
    await expectSettled(gym, job);
  });

  it("used up in the middle of an episode: the attempt is not the job's fault, and is made again", async () => {
    await using file = await holdFile();
    const writes = {
      type: 'execute',
      parameters: { command: 'dd if=/dev/zero of=/home/user/x bs=1M count=64 conv=fsync', shell: true },
    };
    const job = quickJob('used-up', { setup: [file.step, writes], retry: { max_attempts: 1 } });
    let since = runner.lines.length;
    await gym.publish(job);
    await file.asked();
    await using filling = await fill(gym.area.path, 0);
    file.release();
    const line = await runner.logged('job', { batch: 'used-up' });
    expect(line, JSON.stringify(line)).toMatchObject({ end: 'returned', class: 'host' });
    await expectHolding(since, /^disk: /);
    since = runner.lines.length;
    await filling[Symbol.asyncDispose]();
    await expectPullingAgain(since);
    await expectSettled(gym, job, { status: 'completed', score: 1 });
    expect(await attemptEnds(gym, job)).toEqual(['host', 'played']);
  });

  it('for what S3 does not take: the spool has a limit, and no job is pulled beyond it', async () => {
    const [job, next] = ['first', 'next'].map((job_id) => quickJob('spool', { job_id }));
    if (!job || !next) throw new Error('two jobs');
    let since = runner.lines.length;
    gym.proxy.rule = ({ method }) => (method === 'PUT' ? { kind: 'status', status: 503, code: 'SlowDown' } : undefined);
    // Some pictures are more than the limit.
    job.policy = {
      name: 'scripted',
      params: { actions: Array.from({ length: 12 }, (_, n) => ({ type: 'move', x: n, y: 9 })) },
    };
    await gym.publish(job);
    await expectHolding(since, /^spool: /);
    await gym.publish(next);
    since = runner.lines.length;
    gym.proxy.rule = () => undefined;
    await expectPullingAgain(since);
    await expectSettled(gym, job);
    await expectSettled(gym, next);
    expect(gym.events.of('spool', 'started')).toHaveLength(2);
  });

  it('and it stops clean', async () => {
    await runner.stop();
  });
});
