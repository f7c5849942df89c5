import type { ImageRef } from './contract.ts';
import type { Engine } from './engine.ts';
import { VirtualReplica } from './replica.ts';
import { type Template, TemplateDamaged } from './template.ts';

/** What keeps a shelf from being full. */
export interface ShelfTrouble {
  message: string;
  failures: number;
}

export interface ShelfSettings {
  /** Hot replicas kept. */
  hot: number;
  /** Frozen ones kept behind them. */
  frozen: number;
  /** Being made at once: more only make one another late. */
  parallel: number;
}

/** After the first failure, doubled with each up to the last: a host in trouble is not helped by more clones. */
const BACKOFF_MS = { first: 500, last: 60_000 };

/**
 * The replicas of one image: keeps some warm and makes new ones in the background. Knows nothing of who uses them.
 * Failures hold up only this shelf, and only for a while.
 */
export class Shelf {
  readonly image: ImageRef;
  readonly #engine: Engine;
  readonly #settings: ShelfSettings;
  readonly #changed: () => void;
  readonly #rebuild: (signal: AbortSignal) => Promise<Template>;
  readonly #closing = new AbortController();
  readonly #members = new Set<VirtualReplica>();
  readonly #reserved = new Set<VirtualReplica>();
  readonly #busy = new Set<VirtualReplica>();
  #template: Template;
  #trouble: ShelfTrouble | null = null;
  #retry: NodeJS.Timeout | undefined;
  #held: string | null = null;
  #closed = false;
  /** Its files were changed: nothing is made of it, and it is made anew. */
  #damaged = false;
  /** The template being made anew; never rejects. */
  #rebuilding: Promise<void> = Promise.resolve();

  /** @param rebuild makes the template anew when its files were damaged */
  constructor(
    engine: Engine,
    template: Template,
    settings: ShelfSettings,
    rebuild: (signal: AbortSignal) => Promise<Template>,
    changed: () => void,
  ) {
    this.#engine = engine;
    this.#template = template;
    this.image = { name: template.image.name, digest: template.image.digest };
    this.#settings = settings;
    this.#rebuild = rebuild;
    this.#changed = changed;
  }

  get members(): ReadonlySet<VirtualReplica> {
    return this.#members;
  }

  get trouble(): string | null {
    if (this.#held) return this.#held;
    if (!this.#trouble) return null;
    return `${this.image.name}: ${this.#trouble.message} (${this.#trouble.failures} in a row)`;
  }

  /** A replica that may be handed out: a hot one, else a frozen one. */
  available(): VirtualReplica | null {
    return this.#free('hot') ?? this.#free('frozen');
  }

  /** Sets one aside until it is leased, discarded or put back. */
  take(): VirtualReplica | null {
    const replica = this.available();
    if (replica) this.#reserved.add(replica);
    this.refill();
    return replica;
  }

  putBack(replica: VirtualReplica): void {
    this.#reserved.delete(replica);
    this.refill();
  }

  /** Makes no more replicas until it is told `null`. @param reason e.g. a full disk */
  hold(reason: string | null): void {
    const changed = this.#held !== reason;
    this.#held = reason;
    if (changed) this.#changed();
    this.refill();
  }

  /** Starts whatever is missing, as far as it may now. */
  refill(): void {
    if (this.#closed || this.#held !== null || this.#retry !== undefined) return;
    while (this.#busy.size < this.#settings.parallel) {
      const warming = this.#count(['hot', 'gating']);
      const making = this.#count(['cloning', 'restoring']);
      const frozen = this.#free('frozen');
      if (frozen && warming < this.#settings.hot) this.#run(frozen, () => frozen.thaw());
      else if (warming + making + this.#count(['frozen']) < this.#settings.hot + this.#settings.frozen) this.#make();
      else {
        // One that failed beside the last one reserved is missed no more once that is put back.
        if (this.#busy.size === 0) this.#succeeded();
        return;
      }
    }
  }

  /** Discards all of them, those in use included. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#closing.abort(new Error('the pool is closed'));
    await Promise.all([...[...this.#members].map((replica) => this.#discard(replica)), this.#rebuilding]);
  }

  #make(): void {
    const replica = new VirtualReplica(this.#engine, this.#template, () => this.#onPhase(replica));
    this.#members.add(replica);
    this.#run(replica, () => replica.prepare());
  }

  #run(replica: VirtualReplica, work: () => Promise<void>): void {
    this.#busy.add(replica);
    work()
      .then(() => this.#succeeded())
      .catch((error: Error) => this.#failed(error))
      .finally(() => {
        this.#busy.delete(replica);
        if (replica.phase === 'failed') void this.#discard(replica);
        this.#changed();
        this.refill();
      });
  }

  #succeeded(): void {
    if (this.#damaged || this.#trouble === null) return;
    this.#trouble = null;
    this.#changed();
  }

  #failed(error: Error): void {
    // Failures of what was condemned say nothing new.
    if (this.#closed || this.#damaged) return;
    this.#damaged = error instanceof TemplateDamaged || error.cause instanceof TemplateDamaged;
    this.#backOff(error);
    if (this.#damaged) this.#condemn();
  }

  #backOff(error: Error): void {
    const failures = (this.#trouble?.failures ?? 0) + 1;
    this.#trouble = { message: error.message, failures };
    const waitMs = Math.min(BACKOFF_MS.last, BACKOFF_MS.first * 2 ** (failures - 1));
    this.#engine.log.warn({ err: error, image: this.image.name, failures, retry_ms: waitMs }, 'replica not made');
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#tryAgain(), waitMs);
  }

  #tryAgain(): void {
    const again = (): void => {
      this.#damaged = false;
      this.#retry = undefined;
      this.refill();
    };
    if (!this.#damaged) {
      again();
      return;
    }
    this.#rebuilding = this.#rebuild(this.#closing.signal).then(
      (template) => {
        this.#template = template;
        again();
      },
      (error: Error) => {
        if (!this.#closed) this.#backOff(error);
      },
    );
  }

  /** At once, however long the retry waits: they read their memory from the file that was changed. Not those of one made since. */
  #condemn(): void {
    const damaged = this.#template;
    for (const replica of this.#members) {
      if (replica.template === damaged) replica.condemn(`template ${damaged.key} was damaged`);
    }
  }

  #onPhase(replica: VirtualReplica): void {
    if (replica.phase === 'leased') this.#reserved.delete(replica);
    if (replica.phase === 'failed' && !this.#closed) {
      // Whatever is being done to it ends first.
      const idle = !this.#busy.has(replica);
      this.#engine.log.warn({ replica: replica.id, cause: replica.cause }, 'replica failed');
      // One that was leased is its user's to discard, after a last look at it.
      if (idle && !replica.wasLeased) void this.#discard(replica);
    }
    if (replica.phase === 'discarded') void this.#discard(replica);
    this.#changed();
    this.refill();
  }

  async #discard(replica: VirtualReplica): Promise<void> {
    try {
      await replica.discard();
    } catch (error) {
      this.#engine.log.error({ err: error, replica: replica.id }, 'replica not discarded whole');
    }
    this.#members.delete(replica);
    this.#reserved.delete(replica);
    this.#changed();
    this.refill();
  }

  #free(phase: 'hot' | 'frozen'): VirtualReplica | null {
    for (const replica of this.#members) {
      if (replica.phase === phase && !this.#reserved.has(replica) && !this.#busy.has(replica)) return replica;
    }
    return null;
  }

  #count(phases: readonly string[]): number {
    let count = 0;
    for (const replica of this.#members) {
      if (phases.includes(replica.phase) && !this.#reserved.has(replica)) count += 1;
    }
    return count;
  }
}
