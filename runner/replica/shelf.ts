import type { ImageRef } from './contract.ts';
import type { Engine } from './engine.ts';
import { Members } from './members.ts';
import { Recovery } from './recovery.ts';
import { VirtualReplica } from './replica.ts';
import type { ShelfKeeper } from './shelf-keeper.ts';
import type { Template } from './template.ts';
import type { WarmTarget } from './warm-targets.ts';

/** Given up at once: each takes the kernel some milliseconds of a processor. */
const GIVEN_UP_AT_ONCE = 4;
const WARM = ['hot', 'gating'] as const;

/**
 * The replicas of one image: keeps as many warm as it is told to, makes new ones in the background and gives up those that are too many.
 * Knows nothing of who uses them. Failures hold up only this shelf, and only for a while.
 */
export class Shelf {
  readonly image: ImageRef;
  readonly #engine: Engine;
  /** Being made at once: more only make one another late. */
  readonly #parallel: number;
  readonly #keeper: ShelfKeeper;
  readonly #recovery: Recovery;
  readonly #closing = new AbortController();
  readonly #members = new Members();
  #template: Template;
  #held: string | null = null;
  /** Until then nothing is made for the stock. */
  #restsUntilMs = 0;
  #rest: NodeJS.Timeout | undefined;
  /** Too many, on their way out. */
  readonly #givenUp = new Set<VirtualReplica>();
  /** Why there is no room for one more. */
  #refused: string | null = null;
  #target: WarmTarget = { hot: 0, frozen: 0 };
  #closed = false;
  #refilling = false;

  /** @param rebuild makes the template anew when its files were damaged */
  constructor(
    engine: Engine,
    template: Template,
    parallel: number,
    rebuild: (signal: AbortSignal) => Promise<Template>,
    keeper: ShelfKeeper,
  ) {
    this.#engine = engine;
    this.#template = template;
    this.image = { name: template.image.name, digest: template.image.digest };
    this.#parallel = parallel;
    this.#keeper = keeper;
    this.#recovery = new Recovery({
      ...{ image: this.image.name, log: engine.log, closing: this.#closing.signal, rebuild },
      changed: () => keeper.changed(),
      damaged: () => this.#condemn(),
      replaced: (made) => {
        this.#template = made;
      },
      again: () => this.refill(),
    });
  }

  get members(): ReadonlySet<VirtualReplica> {
    return this.#members.all;
  }

  get trouble(): string | null {
    if (this.#held) return this.#held;
    // With one to hand out, that there is no room for another is no reason to stop.
    const { trouble } = this.#recovery;
    if (!trouble) return this.available() ? null : this.#refused;
    return `${this.image.name}: ${trouble.message} (${trouble.failures} in a row)`;
  }

  /** Why it has fewer than it was told to keep, for want of room; null when it has them. */
  get refused(): string | null {
    return this.#refused;
  }

  /** Whether a reservation or an attempt has it, or had it. */
  isOut(replica: VirtualReplica): boolean {
    return this.#members.reserved.has(replica) || replica.wasLeased;
  }

  get target(): WarmTarget {
    return this.#target;
  }

  /** A replica that may be handed out: a hot one, else a frozen one. */
  available(): VirtualReplica | null {
    const beside = this.#keeper.ranking();
    return this.#members.free('hot', beside) ?? this.#members.free('frozen', beside);
  }

  /** Sets one that is available aside until it is leased, discarded or put back. */
  take(replica: VirtualReplica): void {
    this.#members.reserved.add(replica);
  }

  putBack(replica: VirtualReplica): void {
    this.#members.reserved.delete(replica);
    this.refill();
  }

  /** Makes no more replicas until it is told `null`. @param reason e.g. a full disk */
  hold(reason: string | null): void {
    const changed = this.#held !== reason;
    this.#held = reason;
    if (changed) this.#keeper.changed();
    this.refill();
  }

  /** How many are to be kept from now on. */
  aim(target: WarmTarget): void {
    this.#target = target;
    this.refill();
  }

  /** Does something with a hot replica that nobody needs now, unless there is none; it is handed out again afterwards. */
  borrow(work: (replica: VirtualReplica, signal: AbortSignal) => Promise<void>): void {
    const replica = this.#members.free('hot');
    if (!replica || this.#members.busy.size > 0) return;
    this.#run(replica, () =>
      work(replica, AbortSignal.any([this.#closing.signal, replica.lost])).catch((error: Error) => {
        replica.condemn(error.message);
        throw error;
      }),
    );
  }

  /** Gives up what is too much and starts whatever is missing, as far as it may now. */
  refill(): void {
    // Each replica that is given up or begun tells of it, which comes back here.
    if (this.#closed || this.#refilling) return;
    this.#refilling = true;
    try {
      this.#shrink();
      if (this.#held === null && !this.#recovery.waits) this.#fill();
    } finally {
      this.#refilling = false;
    }
  }

  #fill(): void {
    const { hot, frozen } = this.#target;
    while (this.#members.busy.size < this.#parallel) {
      // What was set aside counts until it is leased: most of it is put back, for no job came.
      const stranded = this.#keeper.stranded();
      const warming = this.#members.count(WARM, stranded);
      const stock = this.#members.count(['cloning', 'restoring', 'frozen'], stranded);
      const next = this.#members.free('frozen');
      if (next && warming < hot) {
        if (!this.#hasRoom('hot')) return;
        this.#run(next, () => next.thaw());
      } else if (Math.min(warming, hot) + stock < hot + frozen) {
        // One that is missed is made at once, what is only for the stock when there is time.
        if (warming + stock >= Math.max(1, hot) && this.#isResting()) return;
        if (!this.#hasRoom('frozen')) return;
        this.#make();
      } else {
        this.#refused = null;
        // One that failed beside the last one reserved is missed no more once that is put back.
        if (this.#members.busy.size === 0) this.#recovery.succeeded();
        return;
      }
    }
  }

  /** Discards all of them, those in use included. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#rest);
    this.#closing.abort(new Error('the pool is closed'));
    const recovered = this.#recovery.close();
    await Promise.all([...[...this.#members.all].map((replica) => this.#discard(replica)), recovered]);
  }

  /** The hot ones first, for they are the large ones; never the last one that could be handed out. */
  #shrink(): void {
    const { hot, frozen } = this.#target;
    for (;;) {
      const stranded = this.#keeper.stranded();
      const hotNow = this.#members.count(WARM, stranded);
      if (hotNow + this.#members.count(['frozen'], stranded) <= hot + frozen) return;
      const victim = (hotNow > hot ? this.#members.free('hot') : null) ?? this.#members.free('frozen');
      if (!victim || (this.#members.isLast(victim) && hot + frozen > 0)) return;
      if (this.#givenUp.size >= GIVEN_UP_AT_ONCE) return;
      this.#givenUp.add(victim);
      void this.#discard(victim);
    }
  }

  #isResting(): boolean {
    const leftMs = this.#restsUntilMs - performance.now();
    if (leftMs <= 0 || this.#keeper.restFactor() === 0) return false;
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.refill(), leftMs);
    return true;
  }

  #hasRoom(kind: 'frozen' | 'hot'): boolean {
    const refused = this.#keeper.admit(kind);
    const news = (this.#refused === null) !== (refused === null);
    this.#refused = refused;
    if (news && refused !== null) this.#engine.log.info({ image: this.image.name, kind, reason: refused }, 'no room');
    return refused === null;
  }

  #make(): void {
    const onPhase = (): void => this.#onPhase(replica);
    const replica = new VirtualReplica(this.#engine, this.#template, onPhase, undefined, this.#keeper.seat());
    replica.beforeEnd = () => this.#keeper.ending(replica);
    this.#members.all.add(replica);
    const startedAt = performance.now();
    this.#run(replica, async () => {
      await replica.prepare();
      const tookMs = performance.now() - startedAt;
      this.#restsUntilMs = performance.now() + tookMs * this.#keeper.restFactor();
      this.#keeper.cloned(tookMs);
    });
  }

  #run(replica: VirtualReplica, work: () => Promise<void>): void {
    this.#members.busy.add(replica);
    work()
      .then(() => this.#recovery.succeeded())
      .catch((error: Error) => this.#recovery.failed(error))
      .finally(() => {
        this.#members.busy.delete(replica);
        if (replica.phase === 'failed') void this.#discard(replica);
        this.#keeper.changed();
        this.refill();
      });
  }

  /** At once, however long the retry waits: they read their memory from the file that was changed. Not those of one made since. */
  #condemn(): void {
    const damaged = this.#template;
    for (const replica of this.#members.all) {
      if (replica.template === damaged) replica.condemn(`template ${damaged.key} was damaged`, { byHost: true });
    }
  }

  #onPhase(replica: VirtualReplica): void {
    if (replica.phase === 'leased') {
      this.#members.reserved.delete(replica);
      this.#keeper.leased(replica);
    }
    if (replica.phase === 'failed' && !this.#closed) {
      // Whatever is being done to it ends first.
      const idle = !this.#members.busy.has(replica);
      this.#engine.log.warn({ replica: replica.id, cause: replica.cause }, 'replica failed');
      // One that was leased is its user's to discard, after a last look at it.
      if (idle && !replica.wasLeased) void this.#discard(replica);
    }
    if (replica.phase === 'discarded') void this.#discard(replica);
    this.#keeper.changed();
    this.refill();
  }

  async #discard(replica: VirtualReplica): Promise<void> {
    try {
      await replica.discard();
    } catch (error) {
      this.#engine.log.error({ err: error, replica: replica.id }, 'replica not discarded whole');
    }
    this.#members.remove(replica);
    this.#givenUp.delete(replica);
    this.#keeper.changed();
    this.refill();
  }
}
