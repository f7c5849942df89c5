import { readdir, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { execa } from 'execa';
import { expect } from 'vitest';
import { findStack } from '../../infra/stack-file.ts';
import { openRunRoot } from '../../runner/replica/run-root.ts';
import type { RunnerStatus } from '../../schemas/index.ts';
import { eventually } from './bus-jobs.ts';
import { cgroupsOf } from './cgroups.ts';
import { cacheDir } from './nats.ts';
import { ancestors, descendants, openIn, processes } from './process-tree.ts';
import { gymbusCommand } from './runner-process.ts';
import { Terminal } from './terminal.ts';
import { testDataDir } from './test-data.ts';

export const projectRoot = path.resolve(import.meta.dirname, '../..');
const runnerId = `local-${process.pid}`;
/** A template may have to be made. */
export const READY_MS = 12 * 60_000;
export const GONE_MS = 20_000;
/** Three episodes on a loaded machine are the longest that is waited for. */
const COMMAND_MS = 180_000;
const LOOK_MS = 50;
/** What it is started from may go on: the terminal, a shell that has more to do. */
const AROUND = /terminal\.py|^bash -c |^sleep /;

/** Of commands that start a stack and a runner, or look for them, on the tests' data directory. */
export const localEnv: Record<string, string> = {
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

/** Runs shell commands beside it. */
export const shell = (command: string, more: Record<string, string> = {}) =>
  execa('sh', ['-ec', command], {
    cwd: projectRoot,
    env: { ...localEnv, ...more },
    reject: false,
    all: true,
    timeout: COMMAND_MS,
  });

export const gymbus = (...args: string[]): [string, ...string[]] => [process.execPath, gymbusCommand, ...args];

/** A `gymbus up` or `gymbus demo` on a terminal, and every process it ever started. */
export class LocalRun implements AsyncDisposable {
  readonly terminal: Terminal;
  readonly #seen = new Map<number, string>();
  #over = false;
  readonly #watching: Promise<void>;

  constructor(command: readonly [string, ...string[]], more: Record<string, string> = {}) {
    this.terminal = new Terminal(command, { cwd: projectRoot, env: { ...localEnv, ...more }, columns: 140 });
    this.#watching = this.#watch();
  }

  /** A server of its stack. */
  server(name: 'nats-server' | 'versitygw'): number | undefined {
    return [...this.#seen].find(([, command]) => command.includes(`/${name} `) && command.includes(stackFolder))?.[0];
  }

  /** The run folders of its machines. */
  async runFolders(): Promise<string[]> {
    const runRoot = await openRunRoot();
    const uuids = [...this.#seen.values()].flatMap((command) => /-name gymbus-.* -uuid (\S+)/.exec(command)?.[1] ?? []);
    return uuids.map((uuid) => path.join(runRoot, uuid));
  }

  /** No process of it, nothing that answers as a stack. */
  async expectDead(): Promise<void> {
    await eventually(async () => !(await processes()).some(({ pid }) => this.#seen.has(pid)), GONE_MS);
    expect((await processes()).filter(({ command }) => command.includes(stackFolder))).toEqual([]);
    expect(await findStack(testDataDir)).toBeNull();
  }

  /** Nor a mount, nor a socket, nor a cgroup. */
  async expectNothingLeft(): Promise<void> {
    await this.expectDead();
    const area = path.join(testDataDir, 'area');
    // Tests that somebody else runs on this machine may be in it: then it is theirs to unmount.
    if ((await openIn(area)).length === 0) expect(await readFile('/proc/mounts', 'utf8')).not.toContain(` ${area} `);
    for (const folder of await this.runFolders()) await expect(readdir(folder)).rejects.toThrow('ENOENT');
    expect(await cgroupsOf(runnerId)).toEqual([]);
  }

  /** However a test ended, the next one finds the data directory free. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.terminal[Symbol.asyncDispose]();
    this.#over = true;
    await this.#watching;
    const ofStack = ({ command }: { command: string }) => command.includes(stackFolder);
    await eventually(async () => !(await processes()).some(ofStack), GONE_MS);
  }

  async #watch(): Promise<void> {
    while (!this.#over) {
      for (const { pid, command } of await descendants(this.terminal.pid)) {
        if (!AROUND.test(command)) this.#seen.set(pid, command);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }
}

const stackFolder = path.join(testDataDir, 'stack');

/** A `gymbus up` that is ready. */
export interface Up extends AsyncDisposable {
  run: LocalRun;
  terminal: Terminal;
  /** Of the program itself, below npm and a shell. */
  pid: number;
  npm: number | undefined;
  /** Of NATS, S3 and the health page. */
  ports: number[];
}

export async function startUp(
  command: readonly [string, ...string[]] = ['npx', 'gymbus', 'up'],
  more: Record<string, string> = {},
): Promise<Up> {
  const run = new LocalRun(command, more);
  const { terminal } = run;
  try {
    await terminal.shows('Ctrl-C stops it', READY_MS);
    const health = /http:\/\/127\.0\.0\.1:(\d+)\/healthz/.exec(terminal.text);
    const { pid } = (await (await fetch(health?.[0] ?? '')).json()) as RunnerStatus;
    const stack = await findStack(testDataDir);
    if (!stack) throw new Error('no stack answers');
    const ports = [health?.[1], new URL(stack.natsUrl).port, new URL(stack.s3.endpoint).port].map(Number);
    const npm = (await ancestors(pid)).find(({ command: line }) => line.startsWith('npm exec gymbus'))?.pid;
    await eventually(async () => (await run.runFolders()).length > 0);
    return { run, terminal, pid, npm, ports, [Symbol.asyncDispose]: () => run[Symbol.asyncDispose]() };
  } catch (error) {
    await run[Symbol.asyncDispose]();
    throw error;
  }
}

/** Nobody listens where it did, and nothing else of it is there. */
export async function expectUpGone({ run, ports }: Up, rest: 'cleared' | 'left' = 'cleared'): Promise<void> {
  await (rest === 'cleared' ? run.expectNothingLeft() : run.expectDead());
  for (const port of ports) expect(await listens(port), `port ${port}`).toBe(false);
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}
