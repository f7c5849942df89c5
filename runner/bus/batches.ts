import { performance } from 'node:perf_hooks';
import { ID_PATTERN } from '../../schemas/index.ts';
import {
  type BatchAddress,
  type BatchConsumer,
  ConsumerUnfit,
  durableName,
  ensureConsumer,
  isWildcard,
  readConsumer,
} from './consumers.ts';
import type { Bus } from './index.ts';
import { Lookout } from './lookout.ts';
import { type JobMessage, pull } from './pull.ts';
import { inRotation, shareOf } from './rotation.ts';
import { BusAway } from './stored.ts';

/*
 * Whose turn it is. Jobs given back or lost by their holder are announced by nobody: so a batch that had nothing is asked
 * again after a scan's time, until its durable says that nobody holds a job of it.
 */

export interface TakenJob {
  message: JobMessage;
  /** The consumer's, for the lease. */
  ackWaitMs: number;
}

export interface BatchesSettings {
  /** Images whose jobs are taken. Jobs whose ids are illegal are taken with any of them, to be told so, but for wildcards. */
  images: readonly string[];
  /** Which batches to leave alone or to prefer; by default none. */
  standing?: (batch: string) => { paused: boolean; priority: number };
  scanMs?: number;
  /** For consumers made here. */
  ackWaitMs?: number;
}

export interface BatchView extends BatchAddress {
  consumer: string;
  /** Why its jobs cannot be taken. */
  problem: string | null;
}

/** Longest time until a batch that had nothing is asked again. */
const SCAN_MS = 1_000;
/** An empty answer takes half of this: asking empty batches never fills more than a quarter of the time. */
const SCAN_PER_QUIET_BATCH_MS = 2;
/** A batch without a job for this long is asked whether it is over. */
const FORGET_MS = 10_000;
/** What was wrong with a consumer is looked at again after this. */
const PROBLEM_MS = 10_000;
/** An answer takes milliseconds; after one that took so long the round is over. */
const SLOW_MS = 1_000;
/** An operator may edit a consumer's ack_wait; a lease is never longer than this behind. */
const CONSUMER_FRESH_MS = 1_000;
/** Each waits for the server's disk; more at once gain nothing. */
const MAKING_AT_ONCE = 16;

interface Batch extends BatchAddress {
  key: string;
  consumer: BatchConsumer | null;
  making: Promise<void> | undefined;
  readAtMs: number;
  /** Not worth asking before. */
  dueAtMs: number;
  /** When a job of it was last announced, listed or received. */
  seenAtMs: number;
  problem: string | null;
  /** Its jobs that nobody has, as far as is known: told by the server with each answer, counted up with each announcement. */
  waiting: number;
  /** Whether the server has told that; until then all that is listed is counted. */
  told: boolean;
}

/** The batches of the images served: finds them, makes their durables, takes their jobs in turn. Dispose to stop. */
export class Batches implements Disposable {
  readonly #bus: Bus;
  readonly #images: ReadonlySet<string>;
  readonly #standing: (batch: string) => { paused: boolean; priority: number };
  readonly #scanMs: number;
  readonly #ackWaitMs: number | undefined;
  readonly #batches = new Map<string, Batch>();
  readonly #waiting = new Set<() => void>();
  readonly #lookout: Lookout;
  readonly #stopReconnect: () => void;
  #turn = '';
  readonly #toMake: Batch[] = [];
  #making = 0;

  constructor(bus: Bus, settings: BatchesSettings) {
    this.#bus = bus;
    this.#images = new Set(settings.images);
    this.#standing = settings.standing ?? (() => ({ paused: false, priority: 0 }));
    this.#scanMs = settings.scanMs ?? SCAN_MS;
    this.#ackWaitMs = settings.ackWaitMs;
    this.#lookout = new Lookout(bus, this.#scanMs, {
      onJob: (subject, how) => this.#see(subject, how),
      onAnnounced: () => this.#wake(),
      onListed: (startedAtMs) => {
        for (const batch of this.#batches.values()) {
          if (batch.seenAtMs < startedAtMs) this.#batches.delete(batch.key);
        }
      },
    });
    this.#stopReconnect = bus.onReconnect(() => {
      this.#makeNext();
      this.#wake();
    });
  }

  /** The batches known to have or to have had jobs. */
  get known(): BatchView[] {
    return [...this.#batches.values()].map(({ image, batch, problem }) => {
      return { image, batch, consumer: durableName({ image, batch }), problem };
    });
  }

  /** Jobs of an image that wait to be taken, as far as is known without asking: what other runners took meanwhile is not. */
  waiting(image: string): number {
    return this.#served(image).reduce((sum, batch) => sum + batch.waiting, 0);
  }

  /**
   * Takes up to `count` jobs of an image that can be had now, going round its batches; answers at once and never throws
   * for a bus that is away, so that no job taken is forgotten. Ask only with as many ready replicas. With a job in hand
   * it does not wait out a bus that has become slow: nobody beats for that job yet.
   */
  async take(image: string, count: number, signal?: AbortSignal): Promise<TakenJob[]> {
    const taken: TakenJob[] = [];
    if (!this.#bus.connected) return taken;
    await this.#lookout.look();
    for (const group of this.#due(image)) {
      let round = inRotation(group, this.#turn);
      while (round.length > 0 && taken.length < count) {
        const more: Batch[] = [];
        for (const [index, batch] of round.entries()) {
          const wanted = count - taken.length;
          if (wanted === 0 || signal?.aborted || !this.#bus.connected) return taken;
          this.#turn = batch.key;
          const share = shareOf(wanted, round.length - index);
          const askedAtMs = performance.now();
          const jobs = await this.#ask(batch, share, signal);
          taken.push(...jobs);
          if (taken.length > 0 && performance.now() - askedAtMs > SLOW_MS) return taken;
          if (jobs.length === share) more.push(batch);
        }
        round = more;
      }
    }
    return taken;
  }

  /** Resolves when a job of the image may be there, at the latest after a scan's time; rejects never, also not on abort. */
  wait(image: string, signal?: AbortSignal): Promise<void> {
    const nowMs = performance.now();
    const due = this.#served(image).map((batch) => batch.dueAtMs - nowMs);
    const delayMs = this.#bus.connected ? Math.min(this.#scanMs, ...due) : this.#scanMs;
    if (delayMs <= 0 || signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, delayMs);
      this.#waiting.add(done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }

  [Symbol.dispose](): void {
    this.#stopReconnect();
    this.#lookout[Symbol.dispose]();
    this.#wake();
  }

  #wake(): void {
    for (const done of [...this.#waiting]) done();
  }

  /** Notes a job. @returns whether it is one of ours to take */
  #see(subject: string, how: 'announced' | 'listed'): boolean {
    const address = this.#bus.names.parseJobSubject(subject);
    if (address === null) return false;
    const { image, batch } = address;
    if (!this.#images.has(image) && ID_PATTERN.test(image)) return false;
    if (isWildcard(address)) {
      this.#bus.log.warn({ subject }, 'job on a subject that nobody can take it from; remove it');
      return false;
    }
    const key = `${image} ${batch}`;
    const nowMs = performance.now();
    const known = this.#batches.get(key);
    if (known) {
      known.seenAtMs = nowMs;
      if (how === 'announced' || !known.told) known.waiting += 1;
      // A batch with a problem is not looked at sooner for having one job more.
      if (known.problem === null) known.dueAtMs = 0;
    } else {
      const making = undefined;
      const entry = {
        image,
        batch,
        key,
        consumer: null,
        making,
        readAtMs: 0,
        dueAtMs: 0,
        seenAtMs: nowMs,
        problem: null,
        waiting: 1,
        told: false,
      };
      this.#batches.set(key, entry);
      this.#toMake.push(entry);
      this.#makeNext();
    }
    return true;
  }

  #served(image: string): Batch[] {
    return [...this.#batches.values()].filter(
      (batch) => (batch.image === image || !ID_PATTERN.test(batch.image)) && !this.#standing(batch.batch).paused,
    );
  }

  /** Batches worth asking now, highest priority first. */
  #due(image: string): Batch[][] {
    const nowMs = performance.now();
    const groups = new Map<number, Batch[]>();
    for (const batch of this.#served(image)) {
      if (batch.dueAtMs > nowMs) continue;
      const { priority } = this.#standing(batch.batch);
      const group = groups.get(priority);
      if (group) group.push(batch);
      else groups.set(priority, [batch]);
    }
    return [...groups].sort(([a], [b]) => b - a).map(([, group]) => group);
  }

  async #ask(batch: Batch, count: number, signal: AbortSignal | undefined): Promise<TakenJob[]> {
    let consumer = await this.#consumerOf(batch);
    if (consumer === null) return [];
    let { messages, end } = await this.#pull(consumer, count, signal);
    if (end === 'no_consumer') {
      this.#bus.log.info({ consumer: consumer.name }, 'consumer is gone; making it anew');
      batch.consumer = null;
      consumer = await this.#consumerOf(batch);
      if (consumer === null) return [];
      ({ messages, end } = await this.#pull(consumer, count, signal));
    }
    const { ackWaitMs } = consumer;
    const nowMs = performance.now();
    if (messages.length > 0) batch.seenAtMs = nowMs;
    const left = end === 'empty' ? 0 : messages.at(-1)?.pending;
    if (left !== undefined) [batch.waiting, batch.told] = [left, true];
    const quietMs = Math.max(this.#scanMs, this.#batches.size * SCAN_PER_QUIET_BATCH_MS);
    batch.dueAtMs = end === 'full' ? 0 : nowMs + quietMs;
    if (end === 'empty' && messages.length === 0 && nowMs - batch.seenAtMs > FORGET_MS) await this.#forgetIfOver(batch);
    if (messages.length === 0) return [];
    const fresh = await this.#refresh(batch, CONSUMER_FRESH_MS);
    return messages.map((message) => ({ message, ackWaitMs: fresh?.ackWaitMs ?? ackWaitMs }));
  }

  #pull({ name, ackWaitMs }: BatchConsumer, count: number, signal: AbortSignal | undefined) {
    return pull(this.#bus, name, count, { signal, ackWaitMs });
  }

  /** Null when there is none now; when to try again is noted. */
  async #consumerOf(batch: Batch): Promise<BatchConsumer | null> {
    if (batch.consumer === null) {
      batch.making ??= this.#make(batch).finally(() => {
        batch.making = undefined;
      });
      await batch.making;
    }
    return batch.consumer;
  }

  async #make(batch: Batch): Promise<void> {
    try {
      batch.consumer = await ensureConsumer(this.#bus, batch, this.#ackWaitMs);
      batch.readAtMs = performance.now();
      batch.problem = null;
    } catch (error) {
      const told = batch.problem;
      batch.problem = error instanceof Error ? error.message : String(error);
      const away = error instanceof BusAway;
      batch.dueAtMs = performance.now() + (away ? this.#scanMs : PROBLEM_MS);
      if (told === batch.problem) return;
      const fields = error instanceof ConsumerUnfit || away ? { cause: batch.problem } : { err: error };
      this.#bus.log.error({ image: batch.image, batch: batch.batch, ...fields }, 'no consumer for a batch');
    }
  }

  /** Durables are made on sight, in the background: progress per batch shows in the consumer report from then on. */
  #makeNext(): void {
    if (this.#making >= MAKING_AT_ONCE) return;
    this.#making += 1;
    void this.#makeAll().finally(() => {
      this.#making -= 1;
    });
  }

  async #makeAll(): Promise<void> {
    while (this.#bus.connected) {
      const batch = this.#toMake.pop();
      if (batch === undefined) return;
      await this.#consumerOf(batch);
    }
  }

  async #refresh(batch: Batch, maxAgeMs: number): Promise<BatchConsumer | null> {
    if (performance.now() - batch.readAtMs < maxAgeMs) return batch.consumer;
    try {
      batch.consumer = await readConsumer(this.#bus, batch);
      batch.readAtMs = performance.now();
    } catch (error) {
      this.#bus.log.warn({ consumer: durableName(batch), cause: String(error) }, 'cannot read consumer');
    }
    return batch.consumer;
  }

  async #forgetIfOver(batch: Batch): Promise<void> {
    const askedAtMs = performance.now();
    const consumer = await this.#refresh(batch, 0);
    if (consumer?.empty && batch.seenAtMs < askedAtMs) this.#batches.delete(batch.key);
    else batch.seenAtMs = Math.max(batch.seenAtMs, askedAtMs);
  }
}
