import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Duplex, Readable } from 'node:stream';
import { DESCRIPTOR } from './arguments.ts';
import { within } from './deadline.ts';
import { launch, type Rights } from './launcher.ts';
import { Tail } from './tail.ts';

/** SIGKILL needs no cooperation; more than this and the kernel itself is stuck. */
const KILL_DEADLINE_MS = 10_000;

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** Open files of the caller. */
export interface InheritedFds {
  /** The device state a clone starts from; null for a boot. */
  state: number | null;
  memory: number;
  /** For reading and writing. */
  disk: number;
  diskToRead: number;
  /** The disk under an overlay, for reading; null where the disk is none. */
  base: number | null;
}

/** One QEMU process: started tied to this one, its standard error kept, its exit observed. */
export class QemuProcess {
  readonly pid: number;
  /** Resolves once, when the process is gone and reaped. */
  readonly exited: Promise<Exit>;
  readonly qmp: Duplex;
  readonly helper: Duplex;
  /** The QEMU guest agent's; what it says unasked is dropped. */
  readonly agent: Duplex;
  /** The network channel's: silent until the guest is told to use it, and not read from before somebody listens. */
  readonly network: Duplex;
  readonly #child: ChildProcess;
  readonly #stderr = new Tail(16 * 1024);
  readonly #serial = new Tail(256 * 1024);

  private constructor(child: ChildProcess, pid: number) {
    this.#child = child;
    this.pid = pid;
    this.exited = new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
    // A signal that cannot be sent is seen by the exit that does not come.
    child.on('error', () => undefined);
    const stdio = child.stdio as readonly unknown[];
    const [, , stderr, , qmp, helper, serial] = stdio;
    this.qmp = qmp as Duplex;
    this.helper = helper as Duplex;
    this.agent = (stdio[DESCRIPTOR.agent] as Duplex).on('error', () => undefined).resume();
    this.network = (stdio[DESCRIPTOR.network] as Duplex).on('error', () => undefined);
    (stderr as Readable).on('data', (chunk: Buffer) => this.#stderr.add(chunk)).on('error', () => undefined);
    (serial as Duplex).on('data', (chunk: Buffer) => this.#serial.add(chunk)).on('error', () => undefined);
  }

  /**
   * @param fds inherited, under the numbers of `DESCRIPTOR`; the caller closes its own
   * @throws when the launcher cannot be started; that QEMU itself cannot be is seen by its exit
   */
  static async start(
    qemuPath: string,
    args: readonly string[],
    rights: Rights,
    fds: InheritedFds,
  ): Promise<QemuProcess> {
    const [launcher, ...launching] = launch(qemuPath, args, rights);
    // A session of its own: a terminal's Ctrl-C is for the runner to act on.
    const child = spawn(launcher, launching, {
      detached: true,
      env: { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' },
      stdio: [
        'ignore',
        'ignore',
        'pipe',
        fds.state ?? 'ignore',
        'pipe',
        'pipe',
        'pipe',
        fds.memory,
        fds.disk,
        fds.diskToRead,
        fds.base ?? 'ignore',
        'pipe',
        'pipe',
      ],
    });
    if (child.pid === undefined) {
      const [error] = await once(child, 'error');
      throw new Error(`cannot start perl, which starts qemu: ${(error as Error).message}`, { cause: error });
    }
    return new QemuProcess(child, child.pid);
  }

  /** The last 16 KiB QEMU said on standard error. */
  get stderr(): string {
    return this.#stderr.read().toString('utf8').trim();
  }

  /** The last 256 KiB of the guest's serial console. */
  get serial(): Buffer {
    return this.#serial.read();
  }

  /** Idempotent. @throws when the kernel does not let go of it */
  async kill(): Promise<Exit> {
    this.#child.kill('SIGKILL');
    const exit = await within(
      this.exited,
      KILL_DEADLINE_MS,
      () => new Error(`qemu (pid ${this.pid}) did not end ${KILL_DEADLINE_MS} ms after SIGKILL`),
    );
    for (const stream of this.#child.stdio) stream?.destroy();
    return exit;
  }
}

/** An exit in words. */
export function describeExit(exit: Exit, stderr: string): string {
  const how = exit.signal ? `qemu exited with signal ${exit.signal}` : `qemu exited with code ${exit.code}`;
  const last = stderr.split('\n').at(-1);
  return last ? `${how}: ${last}` : how;
}
