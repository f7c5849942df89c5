import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect as connectSocket, createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { type Logger, pino } from 'pino';
import { type NatsUser, natsServerConfig } from '../../infra/nats-config.ts';
import { ensureTool } from '../../infra/tools.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { type Bus, type BusSettings, openBus } from '../../runner/bus/index.ts';
import { streamDefinitions } from '../../runner/bus/streams.ts';
import { freeze } from './freeze.ts';
import { cacheDir } from './test-data.ts';

export { cacheDir };

export const silent: Logger = pino({ level: 'silent' });

/** A log whose lines a test can read. */
export function recordingLog(): { log: Logger; lines: () => Record<string, unknown>[] } {
  const written: string[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => written.push(line) });
  return { log, lines: () => written.map((line) => JSON.parse(line)) };
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** A real nats-server with a store of its own, to freeze, kill and start again. Dispose leaves nothing. */
export class NatsServer implements AsyncDisposable {
  readonly port: number;
  readonly folder: string;
  readonly #binary: string;
  #child: ChildProcess | undefined;

  constructor(port: number, folder: string, binary: string) {
    this.port = port;
    this.folder = folder;
    this.#binary = binary;
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  async start(): Promise<void> {
    const log = openSync(path.join(this.folder, 'server.log'), 'a');
    this.#child = spawn(this.#binary, ['-c', path.join(this.folder, 'server.conf')], { stdio: ['ignore', log, log] });
    closeSync(log);
    for (const deadline = performance.now() + 10_000; performance.now() < deadline; await sleep(10)) {
      if (this.#child.exitCode !== null) throw new Error(readFileSync(path.join(this.folder, 'server.log'), 'utf8'));
      if (await accepts(this.port)) return;
    }
    throw new Error('nats-server did not start');
  }

  freeze(): void {
    freeze(this.#child?.pid);
  }

  thaw(): void {
    this.#child?.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }

  /** Runs the real `nats` command against this server. */
  async cli(...args: string[]): Promise<{ stdout: string; exitCode: number | undefined; all: string }> {
    const nats = await ensureTool('nats', { cacheDir });
    const { stdout, exitCode, all } = await execa(nats, ['--server', this.url, ...args], {
      stdin: 'ignore',
      reject: false,
      all: true,
      timeout: 30_000,
      env: { HOME: this.folder, XDG_CONFIG_HOME: this.folder },
    });
    return { stdout, exitCode, all };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.thaw();
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}

export interface NatsSettings {
  /** As we ship it; costs each write a flush, which most tests need not pay. */
  syncAlways?: boolean;
  users?: readonly NatsUser[];
  /** The whole configuration, for servers that are not as we ship them. */
  config?: (port: number, storeDir: string) => string;
}

export async function startNats(settings: NatsSettings = {}): Promise<NatsServer> {
  const binary = await ensureTool('nats-server', { cacheDir });
  const folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-nats-'));
  const port = await freePort();
  const storeDir = path.join(folder, 'store');
  const { syncAlways = false, users = [] } = settings;
  const config =
    settings.config?.(port, storeDir) ?? natsServerConfig({ host: '127.0.0.1', port, storeDir, syncAlways, users });
  await writeFile(path.join(folder, 'server.conf'), config);
  const server = new NatsServer(port, folder, binary);
  try {
    await server.start();
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
  return server;
}

/** A bus on this server, its streams made. */
export async function openTestBus(server: NatsServer, settings: Partial<BusSettings> = {}): Promise<Bus> {
  const bus = await openBus({ servers: [server.url], name: 'test', log: silent, patienceMs: 10_000, ...settings });
  await ensureStreams(bus, streamDefinitions(bus.names));
  return bus;
}

async function accepts(port: number): Promise<boolean> {
  const socket = connectSocket(port, '127.0.0.1');
  try {
    // It greets with INFO only when it is ready for clients.
    const [first] = (await once(socket, 'data')) as [Buffer];
    return first.toString().startsWith('INFO');
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
