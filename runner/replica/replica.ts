import { randomUUID } from 'node:crypto';
import type { Accelerator, InputAction, ReplicaPhase } from '../../schemas/index.ts';
import { within } from '../qemu/deadline.ts';
import { type Loss, ReplicaLost } from '../qemu/errors.ts';
import { HelperGuest } from '../qemu/guest.ts';
import type { Machine } from '../qemu/machine.ts';
import { restoreState } from '../qemu/migration.ts';
import { encodePng } from '../qemu/png.ts';
import { startClone } from './clone.ts';
import type { Diagnostics, ImageRef, NetworkEnd, Replica, SettleLimits } from './contract.ts';
import type { CpuGroup } from './cpu-groups.ts';
import type { Engine } from './engine.ts';
import { watchGuest } from './guest-watch.ts';
import { nowTicks } from './host-processes.ts';
import { DESKTOP_PASSWORD } from './image-files.ts';
import { cgroupsOf } from './isolation.ts';
import { openNetwork } from './network.ts';
import { identityHolder, type OwnerRecord, releaseOwnership, takeOwnership } from './ownership.ts';
import { RestingPicture } from './resting-picture.ts';
import { passGate, proveCommand, setClock } from './restore-gate.ts';
import { runFolderOf } from './run-root.ts';
import { settle } from './settle.ts';
import {
  FIRST_STATE,
  PHASE_DEADLINE_MS,
  type ReplicaEvent,
  type ReplicaState,
  TransitionError,
  transition,
} from './state.ts';
import { checkTemplate, type Template } from './template.ts';

/** A picture takes a tenth of a second; on a host with no processor to spare, some seconds. */
const LAST_PICTURE_DEADLINE_MS = 6_000;

/** Told of each change of phase, after it. */
export type PhaseListener = (replica: VirtualReplica, from: ReplicaPhase) => void;

/**
 * One virtual machine and its state manager, the only writer of its state. Every phase has a deadline, and what ends a phase
 * by force is always the same: `lost` is aborted, the process killed, and whatever waited for it fails with the cause.
 */
export class VirtualReplica implements Replica {
  readonly id: string = randomUUID();
  readonly image: ImageRef;
  readonly template: Template;
  /** The processors it keeps to; null for any. */
  readonly group: CpuGroup | null;
  /** Made when QEMU runs, before the replica is handed out. */
  guest!: HelperGuest;
  /** Called once when a leased one is discarded, before its machine is killed: a last look at what it used. Must not throw. */
  beforeEnd: (() => Promise<void>) | undefined;
  readonly #engine: Engine;
  readonly #machineId: string;
  readonly #onPhase: PhaseListener;
  readonly #lost = new AbortController();
  #state: ReplicaState = FIRST_STATE;
  #timer: NodeJS.Timeout | undefined;
  #machine: Machine | undefined;
  #record: OwnerRecord | undefined;
  /** What is being done to it now; never rejects. */
  #work: Promise<unknown> = Promise.resolve();
  #discarded: Promise<void> | undefined;
  #lastPicture: Buffer | null = null;
  readonly #resting = new RestingPicture();
  readonly #discardListeners: (() => void)[] = [];
  #wasLeased = false;
  /** It was condemned for what is this host's fault. */
  #byHost = false;
  #looks = 0;

  /** @param machineId its guest's identity, 32 hex digits */
  constructor(
    engine: Engine,
    template: Template,
    onPhase: PhaseListener = () => undefined,
    machineId: string = randomUUID().replaceAll('-', ''),
    group: CpuGroup | null = null,
  ) {
    this.image = { name: template.image.name, digest: template.image.digest };
    this.template = template;
    this.group = group;
    this.#engine = engine;
    this.#machineId = machineId;
    this.#onPhase = onPhase;
    this.#startTimer();
  }

  get phase(): ReplicaPhase {
    return this.#state.phase;
  }

  /** Why it failed; null when it did not. */
  get cause(): string | null {
    return this.#state.cause;
  }

  /** Whether it ever belonged to an attempt. */
  get wasLeased(): boolean {
    return this.#wasLeased;
  }

  /** How often its user waited for it to come to rest: once before the first step, and after each. */
  get looks(): number {
    return this.#looks;
  }

  get accelerator(): Accelerator {
    return this.template.hardware.accelerator;
  }

  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** The machine itself, for tests and figures. */
  get machine(): Machine {
    if (!this.#machine) throw new Error(`replica ${this.id} has no machine while ${this.phase}`);
    return this.#machine;
  }

  /** From nothing to frozen. @throws what went wrong; the replica is then failed */
  prepare(): Promise<void> {
    return this.#do(['cloning'], async () => {
      const record: OwnerRecord = {
        schema: 'gymbus.owner.v1',
        runner: this.#engine.runnerId,
        id: this.id,
        uuid: this.id,
        machine_id: this.#machineId,
        run_folder: runFolderOf(this.#engine, this.id),
        cgroups: cgroupsOf(this.#engine.isolation, this.id),
        ticks: await nowTicks(),
      };
      const folder = await takeOwnership(this.#engine.area.path, record);
      this.#record = record;
      const machine = await startClone(
        ...([this.#engine, this.template, this.id, folder, record.run_folder] as const),
        ...([this.group, this.lost] as const),
      );
      this.#machine = machine;
      this.guest = new HelperGuest(machine.helper, machine.size, {
        name: this.template.image.manifest.user,
        password: DESKTOP_PASSWORD,
      });
      const onLost = (): void => this.#apply({ type: 'fail', cause: machine.cause ?? 'machine lost' });
      if (machine.lost.aborted) onLost();
      else machine.lost.addEventListener('abort', onLost, { once: true });
      this.lost.throwIfAborted();
      this.#apply({ type: 'cloned' });
      await restoreState(machine.qmp, this.lost);
      this.#apply({ type: 'restored' });
    });
  }

  /** From frozen to hot: passes the restore gate, runs a first command, then pauses. @throws GateFailed, ReplicaLost */
  thaw(): Promise<void> {
    return this.#do(['frozen'], async () => {
      await this.#passGate(this.lost);
      await proveCommand(this.guest, this.lost);
      await this.machine.pause();
      this.#apply({ type: 'passed' });
    });
  }

  /**
   * From hot, or from frozen through the gate, to leased: it runs, its clock is right.
   * @throws GateFailed, TemplateDamaged, ReplicaLost, or the signal's reason; the replica is then failed
   */
  lease(signal: AbortSignal): Promise<void> {
    return this.#do(['hot', 'frozen'], async () => {
      const either = AbortSignal.any([signal, this.lost]);
      // It may have waited for hours, and reads what it never wrote from a file that others can write.
      const sound = checkTemplate(this.template);
      if (this.phase === 'frozen') {
        await Promise.all([sound, this.#passGate(either)]);
        this.#apply({ type: 'passed' });
      } else {
        await Promise.all([sound, this.machine.run(), setClock(this.machine, either)]);
      }
      this.lost.throwIfAborted();
      this.#apply({ type: 'lease' });
      void this.#watch();
    });
  }

  /** What hangs in a guest that plays is this replica's end: its attempt is played again on another. */
  async #watch(): Promise<void> {
    const fault = await watchGuest(this.machine, this.lost);
    if (fault !== null) this.condemn(fault);
  }

  async screenshot(signal: AbortSignal): Promise<Buffer> {
    this.lost.throwIfAborted();
    using picture = this.#resting.take() ?? (await this.machine.screen.picture(AbortSignal.any([signal, this.lost])));
    this.#lastPicture = await encodePng(picture);
    return this.#lastPicture;
  }

  async act(action: InputAction, signal: AbortSignal): Promise<void> {
    this.lost.throwIfAborted();
    this.#resting.forget();
    await this.machine.input.perform(action, AbortSignal.any([signal, this.lost]));
  }

  async settle(limits: SettleLimits, signal: AbortSignal): Promise<boolean> {
    const either = AbortSignal.any([signal, this.lost]);
    this.#looks += 1;
    const picture = await settle(this.machine, this.template.image.manifest.volatile_regions, limits, either);
    if (picture) this.#resting.keep(picture);
    return picture !== null;
  }

  async openNetwork(end: NetworkEnd, signal: AbortSignal): Promise<void> {
    this.lost.throwIfAborted();
    await openNetwork(this.machine, end, AbortSignal.any([signal, this.lost]));
  }

  async diagnostics(): Promise<Diagnostics> {
    const machine = this.#machine;
    const late = (): Error => new Error('no picture in time');
    const fresh = machine ? await within(machine.screen.png(), LAST_PICTURE_DEADLINE_MS, late).catch(() => null) : null;
    return {
      serialLog: machine?.serial ?? Buffer.alloc(0),
      lastPicture: fresh ?? this.#lastPicture,
      cause: this.cause,
    };
  }

  /** Takes it from whoever has it, for a reason from outside of it. */
  condemn(cause: string, { byHost = false } = {}): void {
    this.#byHost ||= byHost;
    this.#apply({ type: 'fail', cause });
  }

  discard(): Promise<void> {
    if (this.#discarded) return this.#discarded;
    // Set before anything is done: whoever hears of the discard may discard it, too.
    let end!: (work: Promise<void>) => void;
    this.#discarded = new Promise((resolve) => {
      end = resolve;
    });
    end(
      this.#discard().finally(() => {
        for (const listener of this.#discardListeners) this.#tell(listener);
      }),
    );
    return this.#discarded;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.discard();
  }

  /** Calls back when nothing of it is left, or the removal failed. */
  onceDiscarded(callback: () => void): void {
    this.#discardListeners.push(callback);
  }

  async #passGate(signal: AbortSignal): Promise<void> {
    this.#apply({ type: 'thaw' });
    const { path: area } = this.#engine.area;
    const identity = { machineId: this.#machineId, holderOf: (id: string) => identityHolder(area, id) };
    await Promise.all([this.machine.run(), passGate(this.machine, this.template, identity, signal)]);
    this.lost.throwIfAborted();
  }

  async #discard(): Promise<void> {
    this.#apply({ type: 'discard' });
    if (this.#wasLeased) await this.beforeEnd?.();
    await this.#machine?.kill();
    await this.#work;
    // A machine that was only just being started when the discard began.
    await this.#machine?.kill();
    if (this.#record) await releaseOwnership(this.#engine.area.path, this.#record);
  }

  /**
   * Runs one piece of its life; an error in it fails the replica.
   * @param from phases it may begin in; in another nothing is done, and the replica stays as it is
   */
  async #do(from: readonly ReplicaPhase[], work: () => Promise<void>): Promise<void> {
    this.lost.throwIfAborted();
    if (!from.includes(this.phase)) {
      throw new TransitionError(`replica ${this.id} is ${this.phase}, not ${from.join(' or ')}`);
    }
    const done = work().catch(async (error: Error) => {
      // How the process ended says more than a channel that closed because of it.
      await this.#machine?.known();
      const first = !this.lost.aborted;
      this.#apply({ type: 'fail', cause: error.message });
      throw first ? error : this.lost.reason;
    });
    this.#work = done.catch(() => undefined);
    return done;
  }

  #apply(event: ReplicaEvent): void {
    const from = this.#state.phase;
    this.#state = transition(this.#state, event);
    const to = this.#state.phase;
    if (to === from) return;
    if (to === 'leased') this.#wasLeased = true;
    this.#startTimer();
    if (to === 'failed' || to === 'discarded') {
      const cause = this.#state.cause ?? 'discarded';
      // Where the machine lives, something was found in it, or it is taken away.
      const loss: Loss = (this.#machine?.lost.reason as ReplicaLost | undefined) ?? { found: true };
      this.#lost.abort(
        new ReplicaLost(cause, { byHost: this.#byHost || (loss.byHost ?? false), found: loss.found ?? false }),
      );
      // A leased one is left to be looked at until its user discards it. Should the kill fail, the discard meets it again.
      if (from !== 'leased' && to === 'failed') this.#machine?.kill(cause).catch(() => undefined);
    }
    this.#tell(() => this.#onPhase(this, from));
  }

  /** What is told here may come from a timer or from QEMU: an error in it would end the whole runner, and every other replica. */
  #tell(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.#engine.log.error({ err: error, replica: this.id }, 'whoever keeps a replica failed to hear of it');
    }
  }

  #startTimer(): void {
    clearTimeout(this.#timer);
    const { phase } = this.#state;
    if (phase === 'discarded') return;
    this.#timer = setTimeout(() => this.#expire(), PHASE_DEADLINE_MS[phase]);
    this.#timer.unref();
  }

  /** The phase's time is over. */
  #expire(): void {
    this.#apply({ type: 'expired' });
    // Failed, and nobody wanted a last look at it; should it resist, whoever keeps it says so.
    if (this.phase === 'discarded') this.discard().catch(() => undefined);
  }
}
