import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findStack } from '../../infra/stack-file.ts';
import { ownedBy } from '../../runner/replica/ownership.ts';
import { lockFile } from '../../runner/system/lock.ts';
import type { Result, RunnerStatus } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { testDataDir } from '../support/gym.ts';
import { cacheDir } from '../support/nats.ts';
import { natsCliEnv } from '../support/nats-cli.ts';
import { ancestors, descendants, openIn, processes } from '../support/process-tree.ts';
import { ensurePython } from '../support/python.ts';
import { blocksOf, readmeFile } from '../support/readme.ts';
import { available } from '../support/requirement.ts';
import { Terminal } from '../support/terminal.ts';

const root = path.resolve(import.meta.dirname, '../..');
const publishers = path.join(root, 'test/integration/publishers');
const runnerId = `up-${process.pid}`;
/** A template may have to be made. */
const READY_MS = 12 * 60_000;
const GONE_MS = 20_000;
/** The program's own, or what npm makes of a signal that it was sent as well. */
const ENDED_BY_CTRL_C = [0, 130];
/** Three episodes on a loaded machine are the longest that is waited for. */
const COMMAND_MS = 180_000;

const env: Record<string, string> = {
  ...{ GYMBUS_DATA: testDataDir, GYMBUS_CACHE: cacheDir, GYMBUS_RUNNER_ID: runnerId, GYMBUS_DISK_FLOOR_GIB: '1' },
  ...{ GYMBUS_ACTING: '2', GYMBUS_READY: '1', GYMBUS_DRAIN_S: '5' },
  // As outside of these tests: no server of theirs is meant, and npm says nothing of itself.
  ...{
    NATS_URL: '',
    AWS_ENDPOINT_URL: '',
    AWS_ACCESS_KEY_ID: '',
    AWS_SECRET_ACCESS_KEY: '',
    npm_config_update_notifier: 'false',
  },
};

/** A running `npx gymbus up`, and everything of it that must not be there afterwards. */
interface Up extends AsyncDisposable {
  terminal: Terminal;
  /** Of the program itself, below npm and a shell. */
  pid: number;
  npm: number;
  ports: number[];
  servers: number[];
  runFolders: string[];
}

async function startUp(command: [string, ...string[]] = ['npx', 'gymbus', 'up']): Promise<Up> {
  const terminal = new Terminal(command, { cwd: root, env, columns: 140 });
  try {
    await terminal.shows('Ctrl-C stops it', READY_MS);
    const health = /http:\/\/127\.0\.0\.1:(\d+)\/healthz/.exec(terminal.text);
    const status = (await (await fetch(health?.[0] ?? '')).json()) as RunnerStatus;
    const stack = await findStack(testDataDir);
    if (!stack) throw new Error('no stack answers');
    const ports = [health?.[1], new URL(stack.natsUrl).port, new URL(stack.s3.endpoint).port].map(Number);
    const npm = (await ancestors(status.pid)).find(({ command }) => command.startsWith('npm exec gymbus'));
    if (!npm) throw new Error('npm is not among its ancestors');
    const servers = (await descendants(status.pid)).map(({ pid }) => pid);
    const { records } = await ownedBy(path.join(testDataDir, 'area'), runnerId);
    expect(records.length).toBeGreaterThan(0);
    const runFolders = records.map((record) => record.run_folder);
    const dispose = () => hangUp(terminal);
    return { terminal, pid: status.pid, npm: npm.pid, ports, servers, runFolders, [Symbol.asyncDispose]: dispose };
  } catch (error) {
    await hangUp(terminal);
    throw error;
  }
}

/** However a test ended, the next one finds the data directory free. */
async function hangUp(terminal: Terminal): Promise<void> {
  await terminal[Symbol.asyncDispose]();
  const ofStack = ({ command }: { command: string }) => command.includes(`${testDataDir}/stack`);
  await eventually(async () => !(await processes()).some(ofStack), GONE_MS);
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}

/** No process, no listener, nothing that answers as a stack. */
async function expectDead(up: Up): Promise<void> {
  await eventually(async () => {
    const alive = new Set((await processes()).map(({ pid }) => pid));
    return ![up.pid, ...up.servers].some((pid) => alive.has(pid));
  }, GONE_MS);
  for (const port of up.ports) expect(await listens(port), `port ${port}`).toBe(false);
  expect((await processes()).filter(({ command }) => command.includes(`${testDataDir}/stack`))).toEqual([]);
  expect(await findStack(testDataDir)).toBeNull();
}

/** Nor a mount, nor a socket. */
async function expectNothingLeft(up: Up): Promise<void> {
  await expectDead(up);
  const area = path.join(testDataDir, 'area');
  // Tests that somebody else runs on this machine may be in it: then it is theirs to unmount.
  if ((await openIn(area)).length === 0) expect(await readFile('/proc/mounts', 'utf8')).not.toContain(` ${area} `);
  for (const folder of up.runFolders) await expect(readdir(folder)).rejects.toThrow('ENOENT');
}

/** The README's job, in one line. */
async function exampleJob(batch: string): Promise<string> {
  const blocks = blocksOf(await readFile(readmeFile, 'utf8'));
  const job = blocks.find(({ language, text }) => language === 'json' && text.includes('gymbus.job.v1'));
  return JSON.stringify({ ...JSON.parse(job?.text ?? ''), batch_id: batch });
}

const shell = (command: string, more: Record<string, string> = {}) =>
  execa('sh', ['-ec', command], { cwd: root, env: { ...env, ...more }, reject: false, all: true, timeout: COMMAND_MS });

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
    await expectNothingLeft(up);
    const env1 = await shell('npx gymbus env');
    expect({ exitCode: env1.exitCode, stdout: env1.stdout }).toEqual({ exitCode: 1, stdout: '' });
  });

  it('leaves nothing behind either when only npm is killed', async () => {
    // From a shell that goes on: else the terminal would hang up, which is a signal of its own.
    await using up = await startUp(['bash', '-c', 'npx gymbus up; sleep 60']);
    process.kill(up.npm, 'SIGKILL');
    await expectNothingLeft(up);
    expect(up.terminal.text).toContain('gymbus: the npm that started this is gone');
  });

  it('killed itself, it takes servers and machines with it; the next one clears up the rest', async () => {
    await using up = await startUp();
    process.kill(up.pid, 'SIGKILL');
    await expectDead(up);
    await using next = await startUp();
    for (const folder of up.runFolders) await expect(readdir(folder)).rejects.toThrow('ENOENT');
    next.terminal.interrupt();
    expect(ENDED_BY_CTRL_C).toContain(await next.terminal.exit(GONE_MS));
    await expectNothingLeft(next);
  });

  it('says what it waits for when it is told to stop, and gives jobs back at once on a second Ctrl-C', async () => {
    await using up = await startUp();
    const job = {
      ...{ schema: 'gymbus.job.v1', batch_id: 'long', job_id: 'nap', image: 'debian-desktop', instruction: 'Wait.' },
      policy: { name: 'scripted', params: { actions: [{ type: 'wait', seconds: 60 }, { type: 'done' }] } },
      limits: { step_s: 90 },
    };
    const submitted = await shell(`echo '${JSON.stringify(job)}' | npx gymbus submit -`);
    expect(submitted.exitCode, submitted.all).toBe(0);
    await eventually(async () => (await shell('npx gymbus watch long --once')).all.includes('1 running'), COMMAND_MS);
    up.terminal.interrupt();
    await up.terminal.shows(
      'stopping: 1 job has 5 s to end, then go back to the queue; Ctrl-C again gives them back now',
    );
    up.terminal.interrupt();
    expect(ENDED_BY_CTRL_C).toContain(await up.terminal.exit(GONE_MS));
    await expectNothingLeft(up);
  });
});

it('npx finds gymbus in a fresh copy of the sources, and installs what is missing', async () => {
  const copy = await mkdtemp(path.join(os.tmpdir(), 'gymbus-fresh-'));
  try {
    for (const name of await readdir(root)) {
      if (name === 'node_modules' || name === 'dist' || name === '.git') continue;
      await cp(path.join(root, name), path.join(copy, name), { recursive: true });
    }
    const version = await execa('npx', ['gymbus', '--version'], { cwd: copy, env, reject: false, timeout: 4 * 60_000 });
    expect(version.exitCode, version.stderr).toBe(0);
    expect(version.stdout).toBe(JSON.parse(await readFile(path.join(root, 'package.json'), 'utf8')).version);
    expect(version.stderr).toContain('gymbus: installing npm dependencies ...');
    expect(version.stderr).toContain('gymbus: compiling ...');
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
});
