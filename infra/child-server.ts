import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, rename } from 'node:fs/promises';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { identify, type ProcessIdentity } from './process-identity.ts';

export interface ServerSettings {
  name: string;
  binary: string;
  args: readonly string[];
  /** Its whole environment, PATH aside. */
  env?: Record<string, string>;
  logFile: string;
  /** Whether it answers; asked until it does. */
  probe: () => Promise<boolean>;
  /** How long it may take until it answers. */
  readyMs: number;
  signal?: AbortSignal | undefined;
}

/** A server did not start, or ended while it was needed. The message has the end of its log. */
export class ServerFailed extends Error {
  override readonly name = 'ServerFailed';
}

const PROBE_EVERY_MS = 50;
/** Servers flush and close within this; then they are killed, which loses nothing that was confirmed. */
const STOP_MS = 10_000;
const LOG_TAIL_CHARS = 2_000;

/**
 * A server as a child of ours: in a session of its own, so that a terminal's Ctrl-C does not reach it, and killed by the
 * kernel the moment we are gone, however we went.
 */
export class ChildServer implements AsyncDisposable {
  readonly identity: ProcessIdentity;
  readonly #name: string;
  readonly #exited: Promise<string>;
  readonly #failed = new AbortController();
  #stopping: Promise<void> | undefined;

  private constructor(name: string, identity: ProcessIdentity, exited: Promise<string>, logFile: string) {
    this.#name = name;
    this.identity = identity;
    this.#exited = exited;
    void exited.then(async (how) => {
      if (this.#stopping) return;
      this.#failed.abort(
        new ServerFailed(`${name} ended by itself (${how}); the end of ${logFile}:\n${await tail(logFile)}`),
      );
    });
  }

  /** Aborted with `ServerFailed` when it ends without having been told to. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  /** @throws ServerFailed, or the signal's reason; nothing is left running then */
  static async start(settings: ServerSettings): Promise<ChildServer> {
    const { name, logFile, signal } = settings;
    signal?.throwIfAborted();
    await rename(logFile, `${logFile}.1`).catch(ignoreMissing);
    const log = await open(logFile, 'a', 0o600);
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', '--', settings.binary, ...settings.args], {
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      env: { PATH: process.env.PATH, ...settings.env },
    });
    const exited = new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signalName) => resolve(signalName ?? `exit code ${code}`));
    });
    try {
      await Promise.race([once(child, 'spawn'), exited]);
      await log.close();
      const { pid } = child;
      if (pid === undefined)
        throw new ServerFailed(`${name} cannot be started: ${await exited} (setpriv is part of util-linux)`);
      await untilReady(settings, exited);
      const identity = await identify(pid);
      if (identity === null) throw new ServerFailed(`${name} ended right after its start: ${await tail(logFile)}`);
      return new ChildServer(name, identity, exited, logFile);
    } catch (error) {
      child.kill('SIGKILL');
      if (child.pid !== undefined) await exited;
      throw error;
    }
  }

  /** Asks it to end, then kills it. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  get name(): string {
    return this.#name;
  }

  async #stop(): Promise<void> {
    if (this.#failed.signal.aborted) return;
    signalProcess(this.identity.pid, 'SIGTERM');
    const timer = setTimeout(() => signalProcess(this.identity.pid, 'SIGKILL'), STOP_MS);
    await this.#exited;
    clearTimeout(timer);
  }
}

async function untilReady(settings: ServerSettings, exited: Promise<string>): Promise<void> {
  const { name, logFile, readyMs, probe, signal } = settings;
  const endMs = performance.now() + readyMs;
  let ended: string | undefined;
  void exited.then((how) => {
    ended = how;
  });
  while (!(await probe()) || ended !== undefined) {
    signal?.throwIfAborted();
    const failure =
      ended !== undefined
        ? `${name} ended while it started (${ended})`
        : performance.now() > endMs && `${name} does not answer after ${readyMs / 1000} s`;
    if (failure) throw new ServerFailed(`${failure}; the end of ${logFile}:\n${await tail(logFile)}`);
    await sleep(PROBE_EVERY_MS);
  }
}

/** @returns false when there is no such process any more */
export function signalProcess(pid: number, signal: NodeJS.Signals): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

async function tail(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch((error: Error) => `(no log: ${error.message})`);
  return text.slice(-LOG_TAIL_CHARS).trim();
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
