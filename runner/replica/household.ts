import { allowance, spokenFor } from './budget.ts';
import { type Capacity, type CapacitySettings, dearest, MEMORY_FLOOR_BYTES, planCapacity } from './capacity.ts';
import type { Engine } from './engine.ts';
import { type HostNow, hostNow, type KernelFolders, numaNodes, openFilesLimit } from './host-now.ts';
import { Learning } from './learning.ts';
import { Ledger, type LedgerEntry, LOOK_MS, type Spoken, untouched, wantedMemory } from './ledger.ts';
import { CALM, type PressureState, underPressure } from './pressure.ts';
import type { VirtualReplica } from './replica.ts';
import type { Stock } from './stock.ts';
import { warmTargets } from './warm-targets.ts';

export interface HouseholdSettings extends CapacitySettings {
  ledgerFolder: string;
  kernel: KernelFolders;
  pace?: Pace | undefined;
  /** Groups of processors. */
  groups: number;
}

/** How quickly a pool goes about it: a test has less time. */
export interface Pace {
  lookMs?: number;
  learnMs?: number;
  hotIdleMs?: number;
  frozenIdleMs?: number;
  quietMs?: number;
  /** See `ShelfKeeper.restFactor`. */
  restFactor?: number;
}

/** A want that was met comes back with the next job: the pool does not grow and shrink with each. */
const WANTED_MS = 10_000;
/** While others act, clones for the stock take a quarter of the time of those that make them. */
const REST_FACTOR = 3;

/**
 * What a pool may have of its host: plans it, speaks for it in the ledger, tells each stock what to keep, and shrinks them when the host
 * is short. The one writer of the pool's record in the ledger.
 */
export class Household {
  readonly #engine: Engine;
  readonly #stocks: readonly Stock[];
  readonly #settings: HouseholdSettings;
  readonly #ledger: Ledger;
  #host: HostNow;
  #capacity: Capacity;
  #pressure: PressureState = CALM;
  /** Memory for which jobs wait on this host, here or at another runner. */
  #wanted = { bytes: 0, atMs: 0 };
  #unknown: string | null = null;
  #timer: NodeJS.Timeout | undefined;
  readonly #learning: Learning;
  #closed = false;

  constructor(engine: Engine, stocks: readonly Stock[], settings: HouseholdSettings) {
    this.#engine = engine;
    this.#stocks = stocks;
    this.#settings = settings;
    this.#learning = new Learning(engine, stocks, { kernel: settings.kernel, ...settings.pace });
    this.#host = this.#look();
    this.#ledger = new Ledger(settings.ledgerFolder, engine.runnerId, () => this.#look(), {
      memoryBytes: MEMORY_FLOOR_BYTES,
      diskBytes: settings.diskFloorBytes,
    });
    this.#capacity = this.#plan();
  }

  get #pace(): Pace {
    return this.#settings.pace ?? {};
  }

  get capacity(): Capacity {
    return this.#capacity;
  }

  get host(): HostNow {
    return this.#host;
  }

  /** Why no jobs are pulled, or null. */
  get trouble(): string | null {
    return this.#unknown ?? this.#pressure.holding;
  }

  entries(): LedgerEntry[] {
    return this.#ledger.entries();
  }

  start(): void {
    this.#tick();
  }

  /** Whether a replica may act; its place is then spoken for. @returns false with the reason noted in the stock */
  mayAct(stock: Stock, replica: VirtualReplica): boolean {
    if (!this.hasPlace()) {
      stock.answered(null);
      return false;
    }
    const now = this.#spoken();
    const { cost } = stock;
    const next: Spoken = {
      acting: now.acting + 1,
      milliCpus: now.milliCpus + this.#milliCpus(),
      memoryBytes: now.memoryBytes + cost.actingBytes - allowance(replica.phase, false, cost),
      diskBytes: now.diskBytes + cost.diskBytes,
    };
    const refused = this.#ledger.ask(next, { act: true });
    if (stock.answered(refused)) {
      this.#engine.log.info({ image: stock.shelf.image.name, reason: refused }, 'no place to act');
    }
    // Who waits without jobs keeps others from acting for nothing.
    if (refused !== null && stock.demand.waiting > 0) this.#ledger.waits(true);
    return refused === null;
  }

  restFactor(): number {
    return this.#acting() === 0 ? 0 : (this.#pace.restFactor ?? REST_FACTOR);
  }

  /** Whether this runner may have one more, whatever others have. */
  hasPlace(): boolean {
    return this.#acting() < this.#capacity.acting;
  }

  /** To be called when the jobs that wait are other ones. */
  demandChanged(): void {
    if (this.#stocks.every(({ demand }) => demand.waiting === 0)) this.#ledger.waits(false);
    this.aim();
  }

  /** Whether there is room for one more replica, or for one to become hot; it is then spoken for. */
  admit({ cost, demand, shelf }: Stock, kind: 'frozen' | 'hot'): string | null {
    const now = this.#spoken();
    const more = kind === 'frozen' ? cost.frozenBytes : cost.hotBytes - cost.frozenBytes;
    // With jobs waiting and no replica to give them others have to know of it: this runner cannot even ask for a place.
    const wants = kind === 'frozen' && demand.waiting > 0 && shelf.available() === null;
    const refused = this.#ledger.ask({ ...now, memoryBytes: now.memoryBytes + more }, { wants });
    if (refused !== null && wants) this.#ledger.waits(true);
    return refused;
  }

  /** Writes down what is there now: after something was given back. */
  settle(): void {
    let [frozen, hot] = [0, 0];
    let residentBytes = 0;
    for (const { shelf, learner, cost } of this.#stocks) {
      for (const replica of shelf.members) {
        if (replica.phase === 'frozen') frozen += 1;
        if (replica.phase === 'hot') hot += 1;
      }
      residentBytes += learner.resident(shelf.members, (it) => allowance(it.phase, shelf.isOut(it), cost));
    }
    this.#ledger.set(this.#spoken(), { residentBytes, frozen, hot });
  }

  /** Tells each stock what to keep, by demand, within what the host has. */
  aim(): void {
    if (this.#closed) return;
    try {
      this.#aim();
    } catch (error) {
      this.#unknown = unknownRoom(error);
    }
  }

  #aim(): void {
    const { acting, ready, frozen } = this.#capacity;
    const images = this.#stocks.map(({ shelf, demand, cost }) => ({
      ...{ name: shelf.image.name, hotBytes: cost.hotBytes, frozenBytes: cost.frozenBytes },
      ...{ waiting: demand.depth, claims: demand.claims, idleMs: demand.idleMs },
    }));
    const targets = warmTargets(images, {
      memoryBytes: this.#warmBytes(acting),
      ...{ hot: ready, frozen, keep: this.#pressure.keep },
      ...{ setHot: this.#settings.ready, setFrozen: this.#settings.frozen },
      ...{ hotIdleMs: this.#pace.hotIdleMs, frozenIdleMs: this.#pace.frozenIdleMs },
    });
    for (const { shelf } of this.#stocks) shelf.aim(targets.get(shelf.image.name) ?? { hot: 0, frozen: 1 });
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#learning.save();
    this.#ledger[Symbol.dispose]();
  }

  #tick(): void {
    if (this.#closed) return;
    const before = this.trouble;
    try {
      this.#host = this.#look();
      this.#unknown = null;
      this.#watchPressure();
      if (this.#learning.look(this.#acting(), this.#pressure.keep === 1)) this.#capacity = this.#plan();
      this.settle();
    } catch (error) {
      this.#unknown = unknownRoom(error);
    }
    // Who does not pull keeps no place from others.
    if (this.trouble !== null) this.#ledger.waits(false);
    if (this.trouble !== before) this.#engine.log.warn({ reason: this.trouble }, 'room on this host');
    for (const { shelf } of this.#stocks) shelf.hold(this.trouble);
    this.aim();
    this.#timer = setTimeout(() => this.#tick(), this.#pace.lookMs ?? LOOK_MS);
    this.#timer.unref();
  }

  #watchPressure(): void {
    const wanted = wantedMemory(this.entries());
    if (wanted > 0) this.#wanted = { bytes: wanted, atMs: performance.now() };
    else if (performance.now() - this.#wanted.atMs > WANTED_MS) this.#wanted.bytes = 0;
    const { keep } = this.#pressure;
    this.#pressure = underPressure(this.#pressure, {
      ...this.#host,
      acting: this.#acting(),
      memoryFloorBytes: MEMORY_FLOOR_BYTES,
      diskFloorBytes: this.#settings.diskFloorBytes,
    });
    if (this.#pressure.keep === keep) return;
    const { reason } = this.#pressure;
    this.#engine.log.info(
      { keep: this.#pressure.keep, reason },
      'warm replicas kept, in parts of what demand asks for',
    );
  }

  /**
   * What warm replicas may have: what is left and what they have, less what the next to act will take here, and less what jobs wait for
   * anywhere on the host. One hot for each that acts is left in any case: where all memory acts, jobs always wait for some.
   */
  #warmBytes(places: number): number {
    const spoken = this.#spoken();
    const acting = this.#stocks.reduce((sum, stock) => sum + stock.acting * stock.cost.actingBytes, 0);
    const dear = dearest(this.#stocks.map(({ cost }) => cost));
    const free = Math.max(0, places - spoken.acting);
    // Whoever sets how many are frozen wants the memory filled with them: then one place is kept free at a time.
    const kept = this.#settings.frozen === undefined ? free : Math.min(1, free);
    const room = this.#ledger.left().memoryBytes + spoken.memoryBytes - acting;
    const hot = Math.min(spoken.acting, this.#capacity.ready);
    const least = this.#stocks.reduce((sum, { cost }) => sum + cost.frozenBytes, 0) + hot * dear.hotBytes;
    return Math.max(least, room - kept * (dear.actingBytes - dear.hotBytes) - this.#wanted.bytes);
  }

  #plan(): Capacity {
    const entries = this.entries();
    const resident = entries.reduce((sum, entry) => sum + entry.residentBytes, 0);
    const room = {
      memoryBytes: this.#host.memoryBytes + resident,
      ...{ cpus: this.#host.cpus, diskBytes: this.#host.diskBytes },
      ...{ numaNodes: numaNodes(this.#settings.kernel), openFiles: openFilesLimit(this.#settings.kernel) },
      groups: this.#settings.groups,
    };
    const capacity = planCapacity(room, dearest(this.#stocks.map(({ cost }) => cost)), this.#settings);
    const known = this.#capacity as Capacity | undefined;
    if (known?.acting !== capacity.acting || known.bound !== capacity.bound) {
      const { kinds, ...counts } = capacity;
      const told = { ...counts, kinds, cpus: room.cpus, memory_bytes: room.memoryBytes, disk_bytes: room.diskBytes };
      this.#engine.log.info({ ...told, untouched_bytes: untouched(entries) }, 'capacity');
    }
    return capacity;
  }

  #look(): HostNow {
    return hostNow(this.#engine.area.path, this.#settings.kernel);
  }

  #acting(): number {
    return this.#stocks.reduce((sum, { acting }) => sum + acting, 0);
  }

  /** A place's part of the host: with a setting that is larger than the plan, so that as many fit as it says. */
  #milliCpus(): number {
    const planned = this.#capacity.places;
    return Math.floor((this.#host.cpus * 1_000) / Math.max(planned, this.#settings.acting ?? 0));
  }

  #spoken(): Spoken {
    const parts = this.#stocks.map(({ shelf, acting, cost }) => ({ members: shelf.members, acting, cost }));
    const isActing = (replica: VirtualReplica): boolean => this.#stocks.some(({ shelf }) => shelf.isOut(replica));
    return spokenFor(parts, isActing, this.#milliCpus());
  }
}

const unknownRoom = (error: unknown): string => `room on this host is unknown: ${(error as Error).message}`;
