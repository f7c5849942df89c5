import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { JobContext } from '../../../functions/contract.ts';
import { type CommandResult, type Guest, type GuestCommand, GuestFileError } from '../../../functions/guest.ts';
import { TrajectoryJob, type TrajectoryJobInput } from '../../../schemas/index.ts';

/**
 * A guest that really runs commands and keeps files: this machine, with the desktop user's home in a folder of its own.
 * Paths under /home/user are that folder; nothing else of the machine is written.
 */
export class LocalGuest implements Guest, Disposable {
  readonly screen = { width: 1280, height: 721 };
  readonly account = { name: 'user', password: 'pass word' };
  readonly home = mkdtempSync(path.join(tmpdir(), 'gymbus-guest-'));
  readonly commands: GuestCommand[] = [];

  exec(command: GuestCommand, signal: AbortSignal): Promise<CommandResult> {
    this.commands.push(command);
    const [file = '', ...args] = command.argv.map((word) => this.#real(word));
    return new Promise((resolve, reject) => {
      const child = spawn(file, args, { cwd: this.home, env: { ...process.env, HOME: this.home }, detached: true });
      let timedOut = false;
      const kill = (): void => {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      };
      const timer = setTimeout(() => {
        timedOut = true;
        kill();
      }, command.timeoutMs);
      signal.addEventListener('abort', kill, { once: true });
      const out: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] };
      child.stdout.on('data', (chunk: Buffer) => out.stdout.push(chunk));
      child.stderr.on('data', (chunk: Buffer) => out.stderr.push(chunk));
      child.stdin.end();
      const over = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', kill);
      };
      child.on('error', (error: NodeJS.ErrnoException) => {
        over();
        reject(new GuestFileError(error.code ?? 'EIO', file, error.message));
      });
      child.on('close', (code) => {
        over();
        if (signal.aborted) reject(signal.reason);
        const [stdout, stderr] = [Buffer.concat(out.stdout), Buffer.concat(out.stderr)];
        resolve({ returncode: code ?? -9, stdout, stderr, timedOut, truncated: false });
      });
    });
  }

  async spawn(command: Omit<GuestCommand, 'timeoutMs' | 'stdin'>): Promise<number> {
    this.commands.push({ ...command, timeoutMs: 0 });
    const [file = '', ...args] = command.argv;
    const child = spawn(file, args, { cwd: this.home, stdio: 'ignore', env: { ...process.env, HOME: this.home } });
    return new Promise((resolve, reject) => {
      child.on('spawn', () => resolve(child.pid ?? 0));
      child.on('error', (error: NodeJS.ErrnoException) =>
        reject(new GuestFileError(error.code ?? 'EIO', file, error.message)),
      );
    });
  }

  async readFile(name: string, { maxBytes }: { maxBytes: number }): Promise<Buffer> {
    try {
      if (statSync(this.#real(name)).size > maxBytes) throw new GuestFileError('EFBIG', name, 'too large');
      return readFileSync(this.#real(name));
    } catch (error) {
      if (error instanceof GuestFileError) throw error;
      throw new GuestFileError((error as NodeJS.ErrnoException).code ?? 'EIO', name, (error as Error).message);
    }
  }

  async writeFile(name: string, data: Uint8Array): Promise<void> {
    if (!name.startsWith('/home/user/')) throw new GuestFileError('EACCES', name, 'permission denied');
    mkdirSync(path.dirname(this.#real(name)), { recursive: true });
    writeFileSync(this.#real(name), data);
  }

  #real(name: string): string {
    return name.replace(/^\/home\/user(?=\/|$)/, this.home);
  }

  [Symbol.dispose](): void {
    rmSync(this.home, { recursive: true, force: true });
  }
}

export function job(change: Partial<TrajectoryJobInput> = {}): TrajectoryJob {
  return TrajectoryJob.parse({
    schema: 'gymbus.job.v1',
    batch_id: 'b1',
    job_id: 'j1',
    image: 'debian-desktop',
    instruction: 'Do it.',
    policy: { name: 'scripted', params: { actions: [{ type: 'done' }] } },
    ...change,
  });
}

export function contextOf(of: TrajectoryJob, inputs: Record<string, string> = {}): JobContext {
  return {
    job: of,
    screen: { width: 1280, height: 721 },
    bucket: 'gymbus',
    downloads: { maxBytes: 1_000_000, allowPrivate: false },
    async readInput(key) {
      const content = inputs[key];
      if (content === undefined) throw new Error(`no object ${key}`);
      return Buffer.from(content);
    },
  };
}

export const never = new AbortController().signal;
