import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lockFile } from '../../runner/system/lock.ts';
import type { Result } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { testDataDir } from '../support/gym.ts';
import { expectUpGone, GONE_MS, localEnv, projectRoot, READY_MS, shell, startUp } from '../support/local-run.ts';
import { natsCliEnv } from '../support/nats-cli.ts';
import { ensurePython } from '../support/python.ts';
import { blocksOf, readmeFile } from '../support/readme.ts';
import { available } from '../support/requirement.ts';

const publishers = path.join(projectRoot, 'test/integration/publishers');
/** The program's own, or what npm makes of a signal that it was sent as well. */
const ENDED_BY_CTRL_C = [0, 130];
/** An episode on a loaded machine may have to begin. */
const BEGUN_MS = 180_000;

/** The README's job, in one line. */
async function exampleJob(batch: string): Promise<string> {
  const blocks = blocksOf(await readFile(readmeFile, 'utf8'));
  const job = blocks.find(({ language, text }) => language === 'json' && text.includes('gymbus.job.v1'));
  return JSON.stringify({ ...JSON.parse(job?.text ?? ''), batch_id: batch });
}

/** A job that takes a minute, and a runner that plays it. */
async function publishNap(batch: string): Promise<void> {
  const job = {
    ...{ schema: 'gymbus.job.v1', batch_id: batch, job_id: 'nap', image: 'debian-desktop', instruction: 'Wait.' },
    policy: { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 60 }, { type: 'done' }] } },
    limits: { step_s: 90 },
  };
  const submitted = await shell(`echo '${JSON.stringify(job)}' | npx gymbus submit -`);
  expect(submitted.exitCode, submitted.all).toBe(0);
  await eventually(async () => (await shell(`npx gymbus watch ${batch} --once`)).all.includes('1 running'), BEGUN_MS);
}

describe.skipIf(!available('vm') || !available('reflink'))('npx gymbus up', () => {
  let turn: AsyncDisposable;
  beforeAll(async () => {
    turn = await lockFile(path.join(testDataDir, 'test.lock'), { waitMs: READY_MS });
    await rm(path.join(testDataDir, 'stack'), { recursive: true, force: true });
    // Makes the template where there is none, so that each test has its time for itself.
    await using first = await startUp();
    first.terminal.interrupt();
    await first.terminal.exit(GONE_MS);
  }, READY_MS + 60_000);
  afterAll(async () => {
    await rm(path.join(testDataDir, 'stack'), { recursive: true, force: true });
    await rm(path.join(testDataDir, 'stack.json'), { force: true });
    await turn?.[Symbol.asyncDispose]();
  });

  it('answers to every client, refuses a second one, and Ctrl-C leaves nothing behind', async () => {
    await using up = await startUp();
    expect(up.terminal.text).not.toContain('Warning');
    const second = await shell('npx gymbus up');
    expect(second.exitCode, second.all).toBe(1);
    expect(second.all).toContain(`gymbus: another gymbus stack runs with the data directory ${testDataDir}`);

    const python = await ensurePython();
    const clients = { ...(await natsCliEnv('', os.tmpdir())), NATS_URL: '', PYTHON: python, PUBLISHERS: publishers };
    const visited = await shell(
      `eval "$(npx gymbus env)"
       nats stream ls --names
       "$PYTHON" -m awscli s3 ls "s3://$GYMBUS_BUCKET/"
       "$PYTHON" -c 'import boto3; print([b["Name"] for b in boto3.client("s3").list_buckets()["Buckets"]])'
       "$PUBLISHERS/publish.sh" up-test battery
       "$PYTHON" "$PUBLISHERS/publish.py" up-test 1
       printf '%s' "$EXAMPLE" | npx gymbus submit -`,
      { ...clients, EXAMPLE: await exampleJob('up-test') },
    );
    expect(visited.exitCode, visited.all).toBe(0);
    expect(visited.all).toContain('GYMBUS_JOBS');
    expect(visited.all).toContain("['gymbus']");

    const watched = await shell('npx gymbus watch up-test', { GYMBUS_LOG_LEVEL: 'info' });
    expect(watched.all).toContain('up-test: 3 done, 0 running, 0 waiting');
    const results = JSON.parse((await shell('npx gymbus results up-test --json')).stdout) as Result[];
    expect(results).toMatchObject([
      { job_id: 'battery', status: 'completed', score: 1, answer: 'no battery here' },
      { job_id: 'explore-00000', status: 'completed', score: null, steps: 10, stop_reason: 'policy_exhausted' },
      { job_id: 'rename-0007', status: 'completed', score: 1, metadata: { group: 'g1' } },
    ]);
    const prefix = results[1]?.trajectory?.replace('s3://gymbus/', '') ?? '';
    const read = await shell(
      `eval "$(npx gymbus env)"; "$PYTHON" test/integration/read_trajectory.py gymbus ${prefix}`,
      clients,
    );
    expect(read.exitCode, read.all).toBe(0);
    expect(JSON.parse(read.stdout)).toMatchObject({ steps: 11, score: null });

    up.terminal.interrupt();
    expect(ENDED_BY_CTRL_C).toContain(await up.terminal.exit(GONE_MS));
    await expectUpGone(up);
    const env1 = await shell('npx gymbus env');
    expect({ exitCode: env1.exitCode, stdout: env1.stdout }).toEqual({ exitCode: 1, stdout: '' });
  });

  it('leaves nothing behind either when only npm is killed, and gives its jobs back at once', async () => {
    // From a shell that goes on: else the terminal would hang up, which is a signal of its own. A drain would outlast the test.
    await using up = await startUp(['bash', '-c', 'npx gymbus up; sleep 60'], { GYMBUS_DRAIN_S: '3600' });
    const batch = `abandoned-${process.pid}`;
    await publishNap(batch);
    if (up.npm === undefined) throw new Error('npm is not among its ancestors');
    process.kill(up.npm, 'SIGKILL');
    await expectUpGone(up);
    expect(up.terminal.text).toContain('stopping: 1 job goes back to the queue now');
    expect(up.terminal.text).toContain('gymbus: the npm that started this is gone');
    const log = await readFile(path.join(testDataDir, 'logs', 'gymbus.log'), 'utf8');
    const told = log.split('\n').filter((line) => line.includes(`"batch":"${batch}"`) && line.includes('"msg":"job"'));
    expect(told.map((line) => (JSON.parse(line) as { end: string }).end)).toEqual(['returned']);
    // Else the next one would play it.
    await rm(path.join(testDataDir, 'stack'), { recursive: true, force: true });
  });

  it('killed itself, it takes servers and machines with it; the next one clears up the rest', async () => {
    await using up = await startUp();
    process.kill(up.pid, 'SIGKILL');
    await expectUpGone(up, 'left');
    await using next = await startUp();
    for (const folder of await up.run.runFolders()) await expect(readdir(folder)).rejects.toThrow('ENOENT');
    next.terminal.interrupt();
    expect(ENDED_BY_CTRL_C).toContain(await next.terminal.exit(GONE_MS));
    await expectUpGone(next);
  });

  it('says what it waits for when it is told to stop, and gives jobs back at once on a second Ctrl-C', async () => {
    await using up = await startUp();
    await publishNap('long');
    up.terminal.interrupt();
    await up.terminal.shows(
      'stopping: 1 job has 5 s to end, then go back to the queue; Ctrl-C again gives them back now',
    );
    up.terminal.interrupt();
    expect(ENDED_BY_CTRL_C).toContain(await up.terminal.exit(GONE_MS));
    await expectUpGone(up);
  });
});

it('npx finds gymbus in a fresh copy of the sources, and installs what is missing', async () => {
  const copy = await mkdtemp(path.join(os.tmpdir(), 'gymbus-fresh-'));
  try {
    for (const name of await readdir(projectRoot)) {
      if (name === 'node_modules' || name === 'dist' || name === '.git') continue;
      await cp(path.join(projectRoot, name), path.join(copy, name), { recursive: true });
    }
    const version = await execa('npx', ['gymbus', '--version'], {
      cwd: copy,
      env: localEnv,
      reject: false,
      timeout: 4 * 60_000,
    });
    expect(version.exitCode, version.stderr).toBe(0);
    expect(version.stdout).toBe(JSON.parse(await readFile(path.join(projectRoot, 'package.json'), 'utf8')).version);
    expect(version.stderr).toContain('gymbus: installing npm dependencies ...');
    expect(version.stderr).toContain('gymbus: compiling ...');
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
});
