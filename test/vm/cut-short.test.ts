import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { stackFile } from '../../infra/stack-file.ts';
import { lockFile } from '../../runner/system/lock.ts';
import type { Result, TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { slowJob } from '../support/fault-jobs.ts';
import { expectUpGone, GONE_MS, gymbus, LocalRun, READY_MS, shell, startUp } from '../support/local-run.ts';
import { available } from '../support/requirement.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { testDataDir } from '../support/test-data.ts';

const SERVERS = ['nats-server', 'versitygw'] as const;
const stackFolder = path.join(testDataDir, 'stack');
/** Nothing is waited for but what is cleaned up; most of it for a bus that is gone. */
const QUICK_MS = 15_000;
/** A job on a loaded machine may have to begin, or some to end. */
const PLAYED_MS = 4 * 60_000;
/** A whole demo, and what the ones before it left in the queue. */
const DEMO_MS = 10 * 60_000;
const RUNNING = /[1-9] running/;

const command = `"${process.execPath}" "${gymbusCommand}"`;
const gymbusIn = (args: string) => shell(`${command} ${args}`);

describe.skipIf(!available('vm') || !available('reflink'))('cut short', () => {
  let turn: AsyncDisposable | undefined;
  beforeAll(async () => {
    turn = await lockFile(path.join(testDataDir, 'test.lock'), { waitMs: READY_MS });
    // Makes the template where there is none, so that each test has its time for itself.
    await using first = await startUp(gymbus('up'));
    first.terminal.interrupt();
    expect(await first.terminal.exit(GONE_MS)).toBe(0);
  }, READY_MS + 60_000);
  beforeEach(() => rm(stackFolder, { recursive: true, force: true }));
  afterAll(async () => {
    await rm(stackFolder, { recursive: true, force: true });
    await turn?.[Symbol.asyncDispose]();
  });

  function kill(run: LocalRun, name: (typeof SERVERS)[number]): void {
    const pid = run.server(name);
    if (pid === undefined) throw new Error(`no ${name} was seen`);
    process.kill(pid, 'SIGKILL');
  }

  it.each(SERVERS)('gymbus up, by the death of %s: says so, ends with 1; the next one plays the jobs', async (name) => {
    const jobs = ['one', 'two', 'three', 'four'].map((job_id): TrajectoryJobInput => slowJob('survivors', { job_id }));
    {
      await using up = await startUp(gymbus('up'));
      const lines = jobs.map((job) => JSON.stringify(job)).join('\n');
      const submitted = await shell(`printf '%s' "$JOBS" | ${command} submit -`, { JOBS: lines });
      expect(submitted.exitCode, submitted.all).toBe(0);
      await eventually(async () => RUNNING.test((await gymbusIn('watch survivors --once')).all), PLAYED_MS);
      kill(up.run, name);
      expect(await up.terminal.exit(QUICK_MS)).toBe(1);
      expect(up.terminal.text).toMatch(/stopping, for a server of the stack ended; \d jobs? stays? in the queue/);
      expect(up.terminal.text).toContain(`gymbus: ${name} ended by itself (SIGKILL)`);
      await expectUpGone(up);
    }
    await using next = await startUp(gymbus('up'));
    const watched = await gymbusIn('watch survivors');
    expect(watched.exitCode, watched.all).toBe(0);
    const results = JSON.parse((await gymbusIn('results survivors --json')).stdout) as Result[];
    expect(results.map(({ job_id }) => job_id)).toEqual(jobs.map(({ job_id }) => job_id).sort());
    for (const result of results) expect(result).toMatchObject({ status: 'completed', valid: true, score: 1 });
    next.terminal.interrupt();
    expect(await next.terminal.exit(GONE_MS)).toBe(0);
    await expectUpGone(next);
  });

  it.each(SERVERS)('gymbus demo, by the death of %s: says so, ends with 1', async (name) => {
    await using demo = new LocalRun(gymbus('demo'));
    await demo.terminal.shows(RUNNING, PLAYED_MS);
    kill(demo, name);
    expect(await demo.terminal.exit(QUICK_MS)).toBe(1);
    expect(demo.terminal.text).toContain(`gymbus: ${name} ended by itself (SIGKILL)`);
    await demo.expectNothingLeft();
  });

  it('gymbus demo, by Ctrl-C wherever it is: 130, and the next one works', async () => {
    const moments: ((run: LocalRun) => Promise<void>)[] = [
      (run) => eventually(() => run.server('nats-server') !== undefined, PLAYED_MS),
      () => eventually(() => existsSync(stackFile(testDataDir)), PLAYED_MS),
      ({ terminal }) => terminal.shows(RUNNING, PLAYED_MS),
    ];
    for (const reached of moments) {
      await using demo = new LocalRun(gymbus('demo'));
      await reached(demo);
      demo.terminal.interrupt();
      expect(await demo.terminal.exit(QUICK_MS), demo.terminal.text).toBe(130);
      expect(demo.terminal.text).toContain('gymbus: interrupted');
      await demo.expectNothingLeft();
    }
    await using whole = new LocalRun(gymbus('demo'));
    expect(await whole.terminal.exit(DEMO_MS), whole.terminal.text).toBe(0);
    await whole.expectNothingLeft();
  });
});
