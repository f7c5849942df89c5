import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Accelerator, ReplicaPhase } from '../../schemas/index.ts';
import type { Capacity, KindCapacity } from './capacity.ts';
import type { ImageRef, ReplicaPool, Reservation } from './contract.ts';
import type { CpuGroup, CpuGroups } from './cpu-groups.ts';
import type { Engine } from './engine.ts';
import type { HostNow } from './host-now.ts';
import { Household, type HouseholdSettings } from './household.ts';
import type { LedgerEntry } from './ledger.ts';
import type { VirtualReplica } from './replica.ts';
import { PoolReservation } from './reservation.ts';
import type { Stock } from './stock.ts';

/** Other runners give places back without telling this one. Chance keeps two that lost to one another from doing so again. */
const RETRY_MS = { least: 50, spread: 100 } as const;

/** What happens in a pool, for who counts it. */
export interface PoolObserver {
  cloned(image: string, milliseconds: number): void;
  claimed(image: string, milliseconds: number, ok: boolean): void;
  /** Its template was made, not found. */
  built(image: string): void;
}

/** Makes the stocks, given whom to tell of changes and to ask for room. */
export type StockMaker = (keeper: {
  changed(): void;
  admit(stock: Stock, kind: 'frozen' | 'hot'): string | null;
  seat(): CpuGroup | null;
  stranded(): ((replica: VirtualReplica) => boolean) | null;
  restFactor(): number;
  ranking(): (replica: VirtualReplica) => number;
}) => Stock[];

/** What there is of one image, and what there is to be. */
export interface ImageState {
  image: string;
  phases: Partial<Record<ReplicaPhase, number>>;
  target: { hot: number; frozen: number };
  /** Jobs in the queue that nobody has begun. */
  waiting: number;
  /** Why it has fewer replicas, or fewer act, than there might be; null when nothing stands in the way. */
  refused: string | null;
}

/**
 * Keeps ready replicas of each image and hands them out. Whoever acts is counted from the reservation until the discard,
 * so that no more act than the host may carry, whatever happens in between. What it has, it has spoken for in the host's ledger.
 */
export class VirtualPool implements ReplicaPool {
  readonly images: readonly ImageRef[];
  readonly accelerator: Accelerator;
  readonly #engine: Engine;
  readonly #stocks: ReadonlyMap<string, Stock>;
  readonly #household: Household;
  readonly #observer: PoolObserver | undefined;
  readonly #resources: AsyncDisposable;
  readonly #changes = new EventEmitter<{ change: [] }>();
  #closed: Promise<void> | undefined;

  constructor(
    engine: Engine,
    makeStocks: StockMaker,
    settings: HouseholdSettings,
    groups: CpuGroups,
    resources: AsyncDisposable,
    observer?: PoolObserver,
  ) {
    this.#changes.setMaxListeners(0);
    const acting = (): (CpuGroup | null)[] => this.#actingGroups();
    const stocks = makeStocks({
      changed: () => this.#changes.emit('change'),
      admit: (stock, kind) => this.#household.admit(stock, kind),
      restFactor: () => this.#household.restFactor(),
      seat: () => groups.seat(() => this.#members().map(({ group }) => group), acting),
      stranded: () => {
        const full = groups.full(acting);
        return full && (({ group }) => full(group));
      },
      ranking: () => {
        const beside = groups.ranking(acting);
        return ({ group }) => beside(group);
      },
    });
    this.#stocks = new Map(stocks.map((stock) => [stock.shelf.image.name, stock]));
    this.images = stocks.map(({ shelf }) => shelf.image);
    this.accelerator = engine.accelerator;
    this.#engine = engine;
    this.#observer = observer;
    this.#resources = resources;
    this.#household = new Household(engine, stocks, settings);
    this.#household.start();
  }

  get capacity(): Capacity {
    return this.#household.capacity;
  }

  get trouble(): string | null {
    for (const { name } of this.images) {
      const trouble = this.troubleOf(name);
      if (trouble) return trouble;
    }
    return null;
  }

  /** Why no job for this image may be taken now; null when one may, or there is none to give it. */
  troubleOf(imageName: string): string | null {
    return this.#household.trouble ?? this.#stocks.get(imageName)?.shelf.trouble ?? null;
  }

  /** In which words the host's memory or disk has refused each reservation for some time. */
  refusalOf(imageName: string): string | null {
    return this.#stocks.get(imageName)?.shortage ?? null;
  }

  /** Tells how many jobs wait for an image: its stock follows. */
  expect(imageName: string, waiting: number): void {
    const stock = this.#stocks.get(imageName);
    if (stock?.demand.expect(waiting)) this.#household.demandChanged();
  }

  reserve(imageName: string): Reservation | null {
    const stock = this.#stocks.get(imageName);
    if (this.#closed || !stock) return null;
    const { shelf } = stock;
    const replica = shelf.available();
    if (!replica || !this.#household.mayAct(stock, replica)) {
      // None is ready: that is no refusal.
      if (!replica) stock.answered(null);
      return null;
    }
    shelf.take(replica);
    stock.acting += 1;
    let taken = true;
    return new PoolReservation(shelf, replica, {
      free: () => {
        if (!taken) return;
        taken = false;
        stock.acting -= 1;
        this.#household.settle();
        this.#changes.emit('change');
      },
      nextReady: (signal) => this.#takeReady(stock, signal),
      log: (error, id) => this.#engine.log.warn({ err: error, replica: id }, 'claim failed, another replica is taken'),
      claimed: (milliseconds, ok) => {
        if (ok) stock.demand.claimed();
        this.#observer?.claimed(imageName, milliseconds, ok);
        // Off the way of whoever waits for the replica: it reads what other runners have.
        setImmediate(() => this.#household.aim());
      },
    });
  }

  phases(): Partial<Record<ReplicaPhase, number>> {
    return phasesOf(this.#members());
  }

  states(): ImageState[] {
    return [...this.#stocks.values()].map(({ shelf, demand, refused }) => ({
      ...{ image: shelf.image.name, phases: phasesOf(shelf.members), target: shelf.target },
      ...{ waiting: demand.waiting, refused: refused ?? shelf.refused },
    }));
  }

  /** The host as it was last looked at. */
  get host(): HostNow {
    return this.#household.host;
  }

  /** What the host could hold of each kind, and what bounds it. */
  get kinds(): Record<'frozen' | 'hot' | 'acting', KindCapacity> {
    return this.capacity.kinds;
  }

  /** Every live pool of this host, as it wrote itself down. */
  neighbours(): LedgerEntry[] {
    return this.#household.entries();
  }

  async waitReady(imageName: string, signal: AbortSignal): Promise<void> {
    const stock = this.#stocks.get(imageName);
    while (!signal.aborted && !this.#closed) {
      if (stock?.shelf.available() && this.#household.hasPlace()) {
        if (stock.refused === null) return;
        // What others have is not announced: the caller asks again.
        const delayMs = RETRY_MS.least + Math.random() * RETRY_MS.spread;
        await sleep(delayMs, undefined, { signal }).catch(() => undefined);
        return;
      }
      await once(this.#changes, 'change', { signal }).catch(() => undefined);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#changes.emit('change');
    try {
      await Promise.all([...this.#stocks.values()].map(({ shelf }) => shelf.close()));
    } finally {
      await this.#household.close();
      // Once no replica of this pool is left to be merged, or to read its template.
      await this.#resources[Symbol.asyncDispose]();
    }
  }

  #members(): VirtualReplica[] {
    return [...this.#stocks.values()].flatMap(({ shelf }) => [...shelf.members]);
  }

  #actingGroups(): (CpuGroup | null)[] {
    const isOut = (it: VirtualReplica): boolean => [...this.#stocks.values()].some(({ shelf }) => shelf.isOut(it));
    return this.#members()
      .filter(isOut)
      .map(({ group }) => group);
  }

  async #takeReady({ shelf }: Stock, signal: AbortSignal): Promise<VirtualReplica> {
    for (;;) {
      signal.throwIfAborted();
      if (this.#closed) throw new Error('the pool is closed');
      const replica = shelf.available();
      if (replica) {
        shelf.take(replica);
        return replica;
      }
      await once(this.#changes, 'change', { signal });
    }
  }
}

function phasesOf(replicas: Iterable<VirtualReplica>): Partial<Record<ReplicaPhase, number>> {
  const counts: Partial<Record<ReplicaPhase, number>> = {};
  for (const { phase } of replicas) counts[phase] = (counts[phase] ?? 0) + 1;
  return counts;
}
