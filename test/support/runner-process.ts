import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { type FoundProcess, qemuProcesses } from '../../runner/replica/host-processes.ts';
import { ownedBy } from '../../runner/replica/ownership.ts';

export const gymbusCommand = path.resolve(import.meta.dirname, '../../infra/bin/gymbus.mjs');
/** The first runner on a data directory makes the template, which takes a minute or two. */
const READY_MS = 8 * 60_000;
const LINE_MS = 60_000;
const EXIT_MS = 60_000;
const TAIL_LINES = 25;

/** One line a runner logged; `line` is the whole of it where it is no JSON. */
export interface LogLine extends Record<string, unknown> {
  msg: string;
}

export interface RunnerSettings {
  id: string;
  /** Where its storage area is, for looking at what it owns. */
  areaPath: string;
  env: Record<string, string>;
}

interface Sought {
  since?: number;
  withinMs?: number;
  batch?: string;
}

/** A real `gymbus run` in a process of its own: its log is read, and it can be frozen, killed and told to stop. */
export class RunnerProcess implements AsyncDisposable {
  readonly id: string;
  readonly pid: number;
  readonly lines: LogLine[] = [];
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  readonly #child: ChildProcess;
  readonly #areaPath: string;
  #onLine: (() => void)[] = [];
  #frozen = false;

  constructor({ id, areaPath, env }: RunnerSettings) {
    this.id = id;
    this.#areaPath = areaPath;
    // Should the test run itself be killed, nothing of it stays.
    const tied = ['--pdeathsig', 'KILL', '--', process.execPath];
    const child = spawn('setpriv', [...tied, gymbusCommand, 'run', '--create-bucket'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, GYMBUS_LOG_FORMAT: 'json', GYMBUS_RUNNER_ID: id, ...env },
    });
    if (child.pid === undefined || child.stderr === null)
      throw new Error('setpriv cannot be started: it is part of util-linux');
    this.pid = child.pid;
    this.#child = child;
    this.exited = once(child, 'exit').then(([code, signal]) => ({ code, signal }));
    createInterface(child.stderr).on('line', (line) => this.#take(line));
    void this.exited.then(() => this.#wake());
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /**
   * The first line, from `since` on, with this message, and of this batch where one is named.
   * @throws when the runner ends first, or it does not come
   */
  async logged(message: string | RegExp, options: Sought = {}): Promise<LogLine> {
    const { since = 0, withinMs = LINE_MS, batch } = options;
    const fits = (line: LogLine): boolean =>
      (typeof message === 'string' ? line.msg === message : message.test(line.msg)) &&
      (batch === undefined || line.batch === batch);
    const endMs = performance.now() + withinMs;
    for (let at = since; ; at++) {
      while (at >= this.lines.length) {
        const leftMs = endMs - performance.now();
        if (leftMs <= 0) throw new Error(`runner ${this.id} did not say ${message}:\n${this.tail()}`);
        if (!this.running) throw new Error(`runner ${this.id} ended before it said ${message}:\n${this.tail()}`);
        await this.#nextLine(leftMs);
      }
      const line = this.lines[at];
      if (line && fits(line)) return line;
    }
  }

  /** Pulls, with a replica that may be handed out. */
  async ready(): Promise<this> {
    await this.logged('runner is ready', { withinMs: READY_MS });
    return this;
  }

  freeze(): void {
    this.#frozen = true;
    this.#child.kill('SIGSTOP');
  }

  thaw(): void {
    this.#frozen = false;
    this.#child.kill('SIGCONT');
  }

  /** As the kernel ends it when memory is short: no last word. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
  }

  terminate(): void {
    this.#child.kill('SIGTERM');
  }

  /** Drains it. @throws as `ended` */
  async stop(): Promise<void> {
    this.terminate();
    await this.ended();
  }

  /** @throws when it does not end by itself with code 0 */
  async ended(withinMs = EXIT_MS): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`runner ${this.id} did not stop:\n${this.tail()}`)), withinMs);
    });
    const { code, signal } = await Promise.race([this.exited, late]).finally(() => clearTimeout(timer));
    if (code !== 0) throw new Error(`runner ${this.id} stopped with ${signal ?? code}:\n${this.tail()}`);
  }

  /** The QEMU processes on record for this runner id that are alive, whichever process of that id started them. */
  async machines(): Promise<FoundProcess[]> {
    const { records } = await ownedBy(this.#areaPath, this.id);
    const uuids = new Set(records.map(({ uuid }) => uuid));
    return (await qemuProcesses()).filter(({ uuid }) => uuids.has(uuid));
  }

  /** The last it said. */
  tail(): string {
    return this.lines
      .slice(-TAIL_LINES)
      .map((line) => JSON.stringify(line).slice(0, 600))
      .join('\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.running) return;
    if (this.#frozen) this.thaw();
    await this.kill();
  }

  #take(line: string): void {
    this.lines.push(parse(line));
    this.#wake();
  }

  #wake(): void {
    const waiting = this.#onLine;
    this.#onLine = [];
    for (const wake of waiting) wake();
  }

  #nextLine(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, withinMs);
      this.#onLine.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

function parse(line: string): LogLine {
  try {
    const parsed: unknown = JSON.parse(line);
    if (typeof parsed === 'object' && parsed !== null && 'msg' in parsed) return parsed as LogLine;
  } catch {
    // What is no JSON is a message for people.
  }
  return { msg: line };
}
