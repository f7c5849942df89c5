import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { ScreenSize } from '../../functions/guest.ts';
import { type Hardware, type MachineIdentity, machineArguments, type Start } from './arguments.ts';
import { within } from './deadline.ts';
import { ReplicaLost } from './errors.ts';
import { HelperClient } from './helper.ts';
import { InputDevices } from './input.ts';
import { machineInput } from './machine-input.ts';
import { describeExit, QemuProcess } from './process.ts';
import { Processors } from './processors.ts';
import { QmpClient, type QmpEvent } from './qmp.ts';
import { Screen } from './screen.ts';

export interface MachineSettings {
  name: string;
  qemuPath: string;
  hardware: Hardware;
  identity: MachineIdentity;
  memoryPath: string;
  diskPath: string;
  /** For its socket and pictures: on a memory file system, its path short. Made here, removed by `kill`. */
  runFolder: string;
  start: Start;
  /** Device state a clone starts from. */
  stateFd: number | null;
  /** Whether the kernel may merge its memory with that of others (KSM). */
  mergeMemory?: boolean;
}

/** QEMU is up in a tenth of a second; on a starved machine, in some seconds. */
const GREETING_DEADLINE_MS = 20_000;

/** Between the end of a channel and that of its process. */
const EXIT_DEADLINE_MS = 1_000;

/** One QEMU and the channels to it. Every way it can end aborts `lost`, with the first cause. */
export class Machine {
  readonly qmp: QmpClient;
  readonly helper: HelperClient;
  readonly screen: Screen;
  readonly processors: Processors;
  readonly input: InputDevices;
  readonly size: ScreenSize;
  readonly #process: QemuProcess;
  readonly #runFolder: string;
  readonly #lost = new AbortController();
  #killed: Promise<void> | undefined;

  private constructor(process: QemuProcess, settings: MachineSettings) {
    this.#process = process;
    this.#runFolder = settings.runFolder;
    this.size = settings.hardware.screen;
    this.qmp = new QmpClient(process.qmp);
    this.helper = new HelperClient(process.helper);
    this.screen = new Screen(this.qmp, settings.runFolder);
    this.processors = new Processors(this.qmp, process.pid);
    this.input = new InputDevices(machineInput(this.qmp, this.helper, this.processors), this.size);
    this.qmp.on('event', (event) => {
      const cause = endingEvent(event);
      if (cause) this.lose(cause, { byHost: event.name === 'BLOCK_IO_ERROR' });
    });
    process.exited.then((exit) => this.lose(describeExit(exit, process.stderr)));
  }

  /**
   * Starts QEMU and agrees with it on the protocol; a clone is then empty, waiting for `restore`.
   * @throws ReplicaLost, also when the signal is aborted before that: nothing of it is left then
   */
  static async start(settings: MachineSettings, signal = new AbortController().signal): Promise<Machine> {
    await mkdir(settings.runFolder, { recursive: true, mode: 0o700 });
    const args = machineArguments(
      settings.name,
      settings.hardware,
      settings.identity,
      {
        memoryPath: settings.memoryPath,
        diskPath: settings.diskPath,
        agentSocket: path.join(settings.runFolder, 'agent.sock'),
      },
      settings.start,
    );
    const { qemuPath, stateFd, mergeMemory } = settings;
    const process = await QemuProcess.start(qemuPath, args, stateFd, mergeMemory).catch(async (error: unknown) => {
      await rm(settings.runFolder, { recursive: true, force: true });
      throw error;
    });
    const machine = new Machine(process, settings);
    try {
      await machine.qmp.negotiate(GREETING_DEADLINE_MS, signal);
    } catch (error) {
      // A QEMU that refuses its arguments closes its channel just before it ends: wait for the reason.
      await machine.known();
      await machine.kill((error as Error).message);
      throw new ReplicaLost(`qemu did not start: ${machine.cause ?? (error as Error).message}`, { cause: error });
    }
    return machine;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Aborted with a `ReplicaLost` the moment the machine is gone. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  get cause(): string | null {
    return this.lost.aborted ? (this.lost.reason as Error).message : null;
  }

  get serial(): Buffer {
    return this.#process.serial;
  }

  /** Resolves when the process is gone, or after a moment: its channels close just before it can be asked how it ended. */
  async known(): Promise<void> {
    if (this.qmp.open && this.helper.open) return;
    await within(this.#process.exited, EXIT_DEADLINE_MS, () => new Error('still running')).catch(() => undefined);
  }

  /** The first cause stays. */
  lose(cause: string, options: { byHost?: boolean } = {}): void {
    if (!this.lost.aborted) this.#lost.abort(new ReplicaLost(cause, options));
  }

  run(): Promise<unknown> {
    return this.qmp.execute('cont');
  }

  pause(): Promise<unknown> {
    return this.qmp.execute('stop');
  }

  /** Ends the process and removes its run folder; idempotent. @throws when the kernel does not let go of it */
  kill(cause = 'discarded'): Promise<void> {
    this.lose(cause);
    this.#killed ??= (async () => {
      await this.#process.kill();
      await rm(this.#runFolder, { recursive: true, force: true });
    })();
    return this.#killed;
  }
}

/** Events after which there is nothing left to play with, in words. */
function endingEvent(event: QmpEvent): string | null {
  switch (event.name) {
    case 'GUEST_PANICKED':
      return 'guest kernel panicked (GUEST_PANICKED)';
    case 'SHUTDOWN':
      if (event.data.reason === 'guest-reset') return 'guest rebooted; a clone cannot';
      if (event.data.guest === true) return 'guest shut itself down';
      return `qemu was told to stop (${String(event.data.reason)})`;
    case 'BLOCK_IO_ERROR':
      return `guest disk failed on ${String(event.data.operation)}: ${String(event.data.reason)}${event.data.nospace ? ' (no space on the host)' : ''}`;
    default:
      return null;
  }
}
