import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { constants } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { within } from './deadline.ts';
import { launchServer, rightsFields } from './launch-program.ts';
import { readStat } from './proc-stat.ts';
import type { Rights } from './rights.ts';
import { Tail } from './tail.ts';

/** An answer takes a millisecond; on a host with no processor to spare, some seconds. */
const ANSWER_DEADLINE_MS = 15_000;
/** SIGKILL needs no cooperation; more than this and the kernel itself is stuck. */
const KILL_DEADLINE_MS = 10_000;
const GONE_POLL_MS = 5;
/** Between the news that a process ended and that of the channels it made before. */
const ENDED_GRACE_MS = 200;

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** A file that the launcher opens for a process, as the runner's user. */
export interface OpenedFile {
  /** The number under which the process finds it. */
  fd: number;
  path: string;
  access: 'r' | 'r+';
}

export interface LaunchOrder {
  command: readonly string[];
  rights: Rights;
  files: readonly OpenedFile[];
  /** The numbers under which the process finds its ends of channels. */
  channels: readonly number[];
  /** For the socket by which channels are made: nobody else may write in it, and its path is short. */
  folder: string;
}

export interface Launched {
  readonly pid: number;
  /** Resolves once, when the process is gone and reaped. Never rejects. */
  readonly exited: Promise<Exit>;
  /** Our ends, in the order's order. Paused: each is to be resumed by whoever listens to it, and no end of it is missed. */
  readonly channels: readonly Socket[];
  /** Idempotent. @throws when the kernel does not let go of it */
  kill(): Promise<Exit>;
}

/** What is known of an order, and whom to tell. */
interface Running {
  pid: number | null;
  started(pid: number): void;
  failed(error: Error): void;
  exited(exit: Exit): void;
}

/**
 * Starts processes through one small one (`launch-program.ts`): Node's own fork copies the page tables of a whole runner, for 8 to 30 ms
 * in which nothing else of it moves. The small one is started when it is needed. When it dies, all that it started die with it, and the
 * next order starts another.
 */
export class Launcher implements AsyncDisposable {
  readonly #running = new Map<string, Running>();
  #server: ChildProcess | null = null;
  #orders = 0;

  /** @throws when perl cannot be started, or does not answer; that the command itself cannot be is seen by its exit */
  async start({ command, rights, files, channels, folder }: LaunchOrder): Promise<Launched> {
    const socketPath = path.join(folder, 'launch.sock');
    await using ends = await listenForEnds(socketPath, channels.length);
    this.#orders += 1;
    const id = String(this.#orders);
    let exited!: Promise<Exit>;
    const started = new Promise<number>((resolve, reject) => {
      exited = new Promise((exit) => {
        this.#running.set(id, { pid: null, started: resolve, failed: reject, exited: exit });
      });
    });
    const opened = files.flatMap(({ fd, path: file, access }) => [String(fd), access, file]);
    const what = [socketPath, channels.join(','), String(files.length), ...opened];
    this.#order(['start', id, ...what, ...rightsFields(rights), ...command]);
    const pid = await within(started, ANSWER_DEADLINE_MS, () => {
      // It can be asked nothing, not even to kill: what it started ends with it.
      this.#server?.kill('SIGKILL');
      return new Error(`the launcher of qemu did not answer within ${ANSWER_DEADLINE_MS} ms`);
    });
    const sockets = await within(ends.all(exited), ANSWER_DEADLINE_MS, () => {
      this.#orderKill(id);
      return new Error(`what was launched did not come for its channels within ${ANSWER_DEADLINE_MS} ms`);
    });
    return { pid, exited, channels: sockets, kill: () => this.#kill(id, pid, exited) };
  }

  /** Ends whatever still runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    const server = this.#server;
    if (server === null) return;
    // It may be the last thing that this process waits for.
    server.ref();
    const ended = once(server, 'exit');
    server.kill('SIGKILL');
    const late = (): Error => new Error(`the launcher of qemu did not end ${KILL_DEADLINE_MS} ms after SIGKILL`);
    await within(ended, KILL_DEADLINE_MS, late);
  }

  async #kill(id: string, pid: number, exited: Promise<Exit>): Promise<Exit> {
    this.#orderKill(id);
    const late = (): Error => new Error(`qemu (pid ${pid}) did not end ${KILL_DEADLINE_MS} ms after SIGKILL`);
    return await within(exited, KILL_DEADLINE_MS, late);
  }

  /** Of one that is gone already, with its launcher maybe, there is nothing to kill. */
  #orderKill(id: string): void {
    if (this.#running.has(id)) this.#order(['kill', id]);
  }

  #order(fields: readonly string[]): void {
    const body = Buffer.from(fields.join('\0'));
    this.#server ??= this.#serve();
    this.#server.stdin?.write(Buffer.concat([Buffer.from(`${body.length}\n`), body]));
  }

  #serve(): ChildProcess {
    const [command, ...args] = launchServer();
    // A session of its own: a terminal's Ctrl-C is for the runner to act on.
    const server = spawn(command, args, {
      detached: true,
      env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' },
      stdio: 'pipe',
    });
    // What it started keeps a runner alive, by its channels; it does not.
    for (const it of [server, server.stdin, server.stdout, server.stderr] as { unref?(): void }[]) it.unref?.();
    const said = new Tail(4 * 1024);
    server.stderr.on('data', (chunk: Buffer) => said.add(chunk));
    // Orders to one that is gone fail with it.
    server.stdin.on('error', () => undefined);
    createInterface(server.stdout).on('line', (line) => this.#take(line.split('\0')));
    server.once('error', (error) => this.#over(server, `cannot start perl, which starts qemu: ${error.message}`));
    server.once('exit', (code, signal) => {
      const last = said.read().toString().trim().split('\n').at(-1);
      this.#over(server, `the launcher of qemu ended with ${signal ?? `code ${code}`}${last ? `: ${last}` : ''}`);
    });
    return server;
  }

  #take([what, id = '', ...facts]: readonly string[]): void {
    const running = this.#running.get(id);
    if (running === undefined) return;
    if (what === 'started') {
      running.pid = Number(facts[0]);
      running.started(running.pid);
      return;
    }
    this.#running.delete(id);
    if (what === 'exit') running.exited(exitOf(Number(facts[0]), Number(facts[1])));
    else running.failed(new Error(`the launcher of qemu ${facts.join(' ')}`));
  }

  /** What it started is being killed by the kernel at this moment, and is somebody else's to reap. */
  #over(server: ChildProcess, reason: string): void {
    if (this.#server !== server) return;
    this.#server = null;
    const left = [...this.#running.values()];
    this.#running.clear();
    for (const { pid, failed, exited } of left) {
      failed(new Error(reason));
      const gone = pid === null ? Promise.resolve() : untilGone(pid);
      gone.then(() => exited({ code: null, signal: 'SIGKILL' }));
    }
  }
}

/** @param signal as wait(2) tells it: 0 for none */
function exitOf(code: number, signal: number): Exit {
  if (signal === 0) return { code, signal: null };
  const names = Object.entries(constants.signals) as [NodeJS.Signals, number][];
  return { code: null, signal: names.find(([, number]) => number === signal)?.[0] ?? 'SIGKILL' };
}

async function untilGone(pid: number): Promise<void> {
  const end = performance.now() + KILL_DEADLINE_MS;
  while (performance.now() < end) {
    const state = readStat(`/proc/${pid}`)?.[0];
    if (state === undefined || state === 'Z' || state === 'X') return;
    await sleep(GONE_POLL_MS);
  }
}

/** Our ends of a process's channels, while it connects to them one after the other. */
interface Ends extends AsyncDisposable {
  /** In the order in which they came. @throws when the process ended before */
  all(exited: Promise<Exit>): Promise<Socket[]>;
}

async function listenForEnds(socketPath: string, count: number): Promise<Ends> {
  const sockets: Socket[] = [];
  const server = createServer({ pauseOnConnect: true });
  const complete = new Promise<'complete'>((resolve) => {
    server.on('connection', (socket) => {
      sockets.push(socket);
      if (sockets.length === count) resolve('complete');
    });
  });
  let taken = false;
  server.listen(socketPath);
  await once(server, 'listening');
  return {
    async all(exited) {
      // One that ended at once is told of before those that it made are taken.
      const ended = exited.then(() => sleep(ENDED_GRACE_MS, 'ended' as const, { ref: false }));
      if ((await Promise.race([complete, ended])) !== 'complete') {
        throw new Error('the launched process ended before it had its channels');
      }
      taken = true;
      return sockets;
    },
    async [Symbol.asyncDispose]() {
      server.close();
      if (!taken) for (const socket of sockets) socket.destroy();
    },
  };
}
