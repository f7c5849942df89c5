import type { Duplex } from 'node:stream';
import type { ScreenSize } from '../../functions/guest.ts';
import { type Hardware, HELPER_PORT, type MachineIdentity, machineArguments } from './arguments.ts';
import { within } from './deadline.ts';
import { type Loss, ReplicaLost } from './errors.ts';
import { HelperClient } from './helper.ts';
import { InputDevices } from './input.ts';
import type { Launcher } from './launcher.ts';
import { giveRunFolder, type MachinePlaces, makeMachineFiles } from './machine-files.ts';
import { machineInput } from './machine-input.ts';
import { describeExit, QemuProcess } from './process.ts';
import { Processors } from './processors.ts';
import { QmpClient, type QmpEvent } from './qmp.ts';
import type { Rights } from './rights.ts';
import { removeRunFolder } from './run-folder.ts';
import { Screen } from './screen.ts';

export interface MachineSettings extends MachinePlaces {
  name: string;
  qemuPath: string;
  launcher: Launcher;
  hardware: Hardware;
  identity: MachineIdentity;
  confinement: Confinement;
}

/** What keeps a machine from harming others. */
export interface Confinement extends Rights {
  /** Asked when the machine was killed and not by us: which of its limits killed it, in words; null for none of them. */
  verdict(): Promise<Verdict | null>;
}

export interface Verdict {
  cause: string;
  /** Neither the guest nor its job had a part in it. */
  byHost: boolean;
}

/** QEMU is up in a tenth of a second; on a starved machine, in some seconds. */
const GREETING_DEADLINE_MS = 20_000;

/** Between the end of a channel and that of its process. */
const EXIT_DEADLINE_MS = 1_000;

/** A guest that shuts down ends the helper first, and then says what it does. */
const REASON_GRACE_MS = 300;

/** One QEMU and the channels to it. Every way it can end aborts `lost`, with the first cause. */
export class Machine {
  readonly qmp: QmpClient;
  readonly helper: HelperClient;
  readonly screen: Screen;
  readonly processors: Processors;
  readonly input: InputDevices;
  readonly size: ScreenSize;
  /** Of the QEMU guest agent, the guest's second voice. */
  readonly agent: Duplex;
  /** To the port that connections of the guest's programs come through. */
  readonly network: Duplex;
  readonly #process: QemuProcess;
  readonly #runFolder: string;
  /** Resolves when it is known how the process ended. */
  readonly #ended: Promise<void>;
  readonly #lost = new AbortController();
  #killed: Promise<void> | undefined;

  private constructor(process: QemuProcess, settings: MachineSettings) {
    this.#process = process;
    this.#runFolder = settings.runFolder;
    this.size = settings.hardware.screen;
    this.agent = process.agent;
    this.network = process.network;
    this.qmp = new QmpClient(process.qmp);
    this.helper = new HelperClient(process.helper, (fault) => this.lose(fault, { found: true }));
    this.screen = new Screen(this.qmp, settings.runFolder);
    this.processors = new Processors(this.qmp, process.pid);
    this.input = new InputDevices(machineInput(this.qmp, this.helper, this.processors), this.size);
    this.qmp.on('event', (event) => {
      const cause = endingEvent(event);
      if (cause) this.lose(cause, { byHost: event.name === 'BLOCK_IO_ERROR' });
      if (closesHelperPort(event)) this.#helperDied();
    });
    this.#ended = process.exited.then(async (exit) => {
      const verdict = exit.signal === null ? null : await settings.confinement.verdict().catch(() => null);
      this.lose(verdict?.cause ?? describeExit(exit, process.stderr), { byHost: verdict?.byHost ?? false });
    });
  }

  /**
   * Starts QEMU and agrees with it on the protocol; a clone is then empty, waiting for `restore`.
   * @throws ReplicaLost, also when the signal is aborted before that: nothing of it is left then
   */
  static async start(settings: MachineSettings, signal = new AbortController().signal): Promise<Machine> {
    const { name, hardware, identity, qemuPath, launcher, confinement, runFolder } = settings;
    const { files, start } = await makeMachineFiles(settings, confinement.user);
    const command = [qemuPath, ...machineArguments(name, hardware, identity, start)];
    const starting = QemuProcess.start(launcher, command, confinement, files, runFolder);
    const process = await starting.catch(async (error: unknown) => {
      await removeRunFolder(runFolder);
      throw error;
    });
    const machine = new Machine(process, settings);
    try {
      await giveRunFolder(runFolder, confinement.user);
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

  /** Resolves when it is known how the process ended, or after a moment: its channels close just before it can be asked how it ended. */
  async known(): Promise<void> {
    if (this.qmp.open && this.helper.open) return;
    await within(this.#ended, EXIT_DEADLINE_MS, () => new Error('still running')).catch(() => undefined);
  }

  /** The first cause stays. */
  lose(cause: string, loss: Loss = {}): void {
    if (this.lost.aborted) return;
    this.#lost.abort(new ReplicaLost(cause, loss));
    // Whoever still waits for the guest is told why no answer comes.
    this.helper.fail(cause);
  }

  /** The registers of all its processors, as QEMU's monitor prints them. @throws QmpSilent, QmpError */
  registers(): Promise<string> {
    return this.qmp.execute('human-monitor-command', { 'command-line': 'info registers -a' });
  }

  /** It is started again by itself, but without what it was doing for us, and nobody knows what else ended with it. */
  #helperDied(): void {
    const cause = 'the helper in the guest died';
    this.helper.fail(cause);
    setTimeout(() => this.lose(cause, { found: true }), REASON_GRACE_MS).unref();
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
      await removeRunFolder(this.#runFolder);
    })();
    return this.#killed;
  }
}

function closesHelperPort({ name, data }: QmpEvent): boolean {
  return name === 'VSERPORT_CHANGE' && data.id === HELPER_PORT && data.open === false;
}

/** Events after which there is nothing left to play with, in words. */
function endingEvent(event: QmpEvent): string | null {
  switch (event.name) {
    case 'GUEST_PANICKED':
      return 'guest kernel panicked (GUEST_PANICKED)';
    case 'SHUTDOWN':
      if (event.data.reason === 'guest-reset') return 'guest rebooted; a clone cannot';
      if (event.data.guest === true) return 'guest shut itself down';
      return `qemu was told to stop (${word(event.data.reason)})`;
    case 'BLOCK_IO_ERROR':
      return `guest disk failed on ${word(event.data.operation)}: ${word(event.data.reason)}${event.data.nospace ? ' (no space on the host)' : ''}`;
    default:
      return null;
  }
}

/** QEMU's own word; of a QEMU that its guest has taken over, whatever it says. */
const word = (value: unknown): string => (typeof value === 'string' ? value.slice(0, 200) : 'something else');
