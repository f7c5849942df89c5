import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { DESCRIPTOR } from './arguments.ts';
import type { Exit, Launched, Launcher, OpenedFile } from './launcher.ts';
import type { Rights } from './rights.ts';
import { Tail } from './tail.ts';

const { qmp, helper, serial, agent, network } = DESCRIPTOR;
const STDERR = 2;
/** They are in the socket by the time the process is gone. */
const LAST_WORDS_MS = 500;
/** Standard error first: it tells why there are no others. */
const CHANNELS = [STDERR, qmp, helper, serial, agent, network] as const;

/** One QEMU process: tied to this one, its standard error kept, its exit observed. */
export class QemuProcess {
  readonly pid: number;
  /** Resolves once, when the process is gone and reaped, and its last words are read. */
  readonly exited: Promise<Exit>;
  readonly qmp: Duplex;
  readonly helper: Duplex;
  /** The QEMU guest agent's; what it says unasked is dropped. */
  readonly agent: Duplex;
  /** The network channel's: silent until the guest is told to use it, and not read from before somebody listens. */
  readonly network: Duplex;
  readonly #process: Launched;
  readonly #stderr = new Tail(16 * 1024);
  readonly #serial = new Tail(256 * 1024);

  private constructor(process: Launched) {
    this.#process = process;
    this.pid = process.pid;
    const of = (channel: (typeof CHANNELS)[number]): Duplex => process.channels[CHANNELS.indexOf(channel)] as Duplex;
    this.qmp = of(qmp);
    this.helper = of(helper);
    this.agent = of(agent).resume();
    this.network = of(network);
    for (const channel of process.channels) channel.on('error', () => undefined);
    const stderr = of(STDERR).on('data', (chunk: Buffer) => this.#stderr.add(chunk));
    const read = new Promise((resolve) => stderr.once('close', resolve));
    this.exited = process.exited.then(async (exit) => {
      await Promise.race([read, sleep(LAST_WORDS_MS, undefined, { ref: false })]);
      return exit;
    });
    stderr.resume();
    of(serial)
      .on('data', (chunk: Buffer) => this.#serial.add(chunk))
      .resume();
  }

  /**
   * @param files under the numbers of `DESCRIPTOR`
   * @param folder see `LaunchOrder.folder`
   * @throws when the launcher cannot be started; that QEMU itself cannot be is seen by its exit
   */
  static async start(
    launcher: Launcher,
    command: readonly string[],
    rights: Rights,
    files: readonly OpenedFile[],
    folder: string,
  ): Promise<QemuProcess> {
    return new QemuProcess(await launcher.start({ command, rights, files, channels: CHANNELS, folder }));
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
    const exit = await this.#process.kill();
    for (const channel of this.#process.channels) channel.destroy();
    return exit;
  }
}

/** An exit in words. */
export function describeExit(exit: Exit, stderr: string): string {
  const how = exit.signal ? `qemu exited with signal ${exit.signal}` : `qemu exited with code ${exit.code}`;
  const last = stderr.split('\n').at(-1);
  return last ? `${how}: ${last}` : how;
}
