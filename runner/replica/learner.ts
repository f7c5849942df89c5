import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from './engine.ts';
import { type Estimates, emptyProfile, estimatesOf, type Figure, mergeSamples, type Profile } from './profile.ts';
import { addToProfile, readProfile } from './profile-file.ts';
import type { VirtualReplica } from './replica.ts';
import type { Template } from './template.ts';
import { ownMemory, processorsBetween, type Usage, usageOf, writtenBytes } from './usage.ts';

/** A machine gives back what it needed for starting when it has been idle for a moment. */
const REST_MS = 2_000;
/** Memory of so many replicas is read at a look, those first that were not looked at for the longest: 1,024 in half a minute. */
const READ_AT_ONCE = 64;
/** Long enough for a desktop's clocks and caches to show. */
const IDLE_LOOK_MS = 3_000;
/** Enough idle desktops were watched: they are all alike. */
const IDLE_ENOUGH = 8;

interface Reading {
  bytes: number;
  atMs: number;
}

/** Learns what replicas of one template need, from those that a shelf has, and keeps it in the template's profile. */
export class Learner {
  readonly #engine: Engine;
  readonly #template: Template;
  readonly #readings = new WeakMap<VirtualReplica, Reading>();
  readonly #since = new WeakMap<VirtualReplica, { phase: string; atMs: number; told: boolean }>();
  readonly #leases = new WeakMap<VirtualReplica, Usage>();
  #profile: Profile;
  #news: Partial<Record<Figure, number[]>> = {};

  private constructor(engine: Engine, template: Template, profile: Profile) {
    this.#engine = engine;
    this.#template = template;
    this.#profile = profile;
  }

  static async open(engine: Engine, template: Template): Promise<Learner> {
    const known = await readProfile(engine.area.path, template.key);
    return new Learner(engine, template, known ?? firstProfile(template));
  }

  /** What is known by now, this runner's own news included. */
  get estimates(): Estimates {
    return estimatesOf(mergeSamples(this.#profile, this.#news));
  }

  get wantsIdle(): boolean {
    return this.estimates.idle_cpu.samples < IDLE_ENOUGH;
  }

  cloned(milliseconds: number): void {
    this.#add('clone_ms', milliseconds);
  }

  /** Looks at some of the replicas. */
  look(members: ReadonlySet<VirtualReplica>): void {
    const nowMs = performance.now();
    const age = (replica: VirtualReplica): number => this.#readings.get(replica)?.atMs ?? Number.NEGATIVE_INFINITY;
    const oldest = [...members].sort((a, b) => age(a) - age(b)).slice(0, READ_AT_ONCE);
    for (const replica of oldest) this.#read(replica, nowMs);
  }

  /** @returns bytes that they had touched when last looked at, of each no more than was spoken for */
  resident(members: ReadonlySet<VirtualReplica>, allowed: (replica: VirtualReplica) => number): number {
    let sum = 0;
    for (const replica of members) sum += Math.min(this.#readings.get(replica)?.bytes ?? 0, allowed(replica));
    return sum;
  }

  /** To be called when an attempt gets it. */
  async leased(replica: VirtualReplica): Promise<void> {
    const usage = await usageOf(replica.machine);
    if (usage) this.#leases.set(replica, usage);
  }

  /** To be called before its machine is killed. */
  async ended(replica: VirtualReplica): Promise<void> {
    const from = this.#leases.get(replica);
    if (!from || replica.machine.lost.aborted) return;
    const [to, written] = await Promise.all([usageOf(replica.machine), writtenBytes(replica.machine)]);
    const memory = ownMemory(replica.machine.pid);
    if (memory !== null) this.#add('acting_bytes', memory);
    if (written !== null) this.#add('episode_disk_bytes', written);
    const processors = to && processorsBetween(from, to);
    if (processors !== null) this.#add('acting_cpu', processors);
    const steps = replica.looks - 1;
    if (to && steps > 0) this.#add('step_cpu_ms', (to.cpuMs - from.cpuMs) / steps);
  }

  /** Lets a hot replica run for a moment with nothing to do, then pauses it again. */
  async watchIdle(replica: VirtualReplica, signal: AbortSignal): Promise<void> {
    const { machine } = replica;
    await machine.run();
    const from = await usageOf(machine);
    await sleep(IDLE_LOOK_MS, undefined, { signal });
    const to = await usageOf(machine);
    const memory = ownMemory(machine.pid);
    await machine.pause();
    const processors = from && to && processorsBetween(from, to);
    if (processors !== null) this.#add('idle_cpu', processors);
    if (memory !== null) this.#add('idle_bytes', memory);
  }

  /** @param bytesPerSecond of one acting replica */
  bandwidth(bytesPerSecond: number): void {
    this.#add('memory_bandwidth', bytesPerSecond);
  }

  /** Writes down what was learned since the last time, and takes what other runners have learned. */
  async save(): Promise<void> {
    const news = this.#news;
    if (Object.keys(news).length === 0) return;
    this.#news = {};
    const { area, runnerId } = this.#engine;
    this.#profile = mergeSamples(this.#profile, news);
    this.#profile = await addToProfile(area.path, this.#template.key, runnerId, firstProfile(this.#template), news);
  }

  #read(replica: VirtualReplica, nowMs: number): void {
    const { phase } = replica;
    const seen = this.#since.get(replica);
    if (seen?.phase !== phase) this.#since.set(replica, { phase, atMs: nowMs, told: false });
    if (phase === 'cloning' || phase === 'discarded' || phase === 'failed') return;
    const bytes = ownMemory(replica.machine.pid);
    if (bytes === null) return;
    this.#readings.set(replica, { bytes, atMs: nowMs });
    if (seen?.phase !== phase || seen.told || nowMs - seen.atMs < REST_MS) return;
    if (phase !== 'frozen' && phase !== 'hot') return;
    seen.told = true;
    this.#add(phase === 'frozen' ? 'frozen_bytes' : 'hot_bytes', bytes);
  }

  #add(figure: Figure, value: number): void {
    this.#news[figure] = [...(this.#news[figure] ?? []), value];
  }
}

function firstProfile({ image, hardware }: Template): Profile {
  const { accelerator, memoryMib } = hardware;
  return emptyProfile({ image: image.name, image_digest: image.digest, accelerator, memory_mib: memoryMib });
}
