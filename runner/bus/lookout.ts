import { performance } from 'node:perf_hooks';
import type { Msg, Subscription } from '@nats-io/transport-node';
import { readHeaders } from './headers.ts';
import type { Bus } from './index.ts';
import { answered } from './stored.ts';

/*
 * Which jobs are there. The bus announces each stored job, headers only, which is quick and may be missed; the stream's
 * subjects are listed at start, after a reconnection, and when sequences show that an announcement was missed.
 */

export interface LookoutEvents {
  /** A job was announced or listed. @returns whether anybody here cares */
  onJob(subject: string, how: 'announced' | 'listed'): boolean;
  /** A job that somebody cares for was announced. */
  onAnnounced(): void;
  /** All jobs there were have been told; what was not since `startedAtMs` (monotonic) is no longer there. */
  onListed(startedAtMs: number): void;
}

/** Tells of the jobs in the queue. Dispose to stop. */
export class Lookout implements Disposable {
  readonly #bus: Bus;
  readonly #scanMs: number;
  readonly #events: LookoutEvents;
  readonly #subscription: Subscription;
  readonly #stopReconnect: () => void;
  /** Highest sequence up to which no announcement is missing. */
  #seenSeq = 0;
  /** The stream's last sequence at the look before. */
  #lastSeq = 0;
  /** When the stream was made: one made anew counts from 1 again. */
  #created = '';
  #listingDue = true;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | undefined;

  constructor(bus: Bus, scanMs: number, events: LookoutEvents) {
    this.#bus = bus;
    this.#scanMs = scanMs;
    this.#events = events;
    this.#subscription = bus.nc.subscribe(`${bus.names.prefix}.queued.>`, {
      callback: (error, message) => {
        if (error) this.#listingDue = true;
        else this.#onAnnouncement(message.subject, sequenceOf(message));
      },
    });
    this.#stopReconnect = bus.onReconnect(() => {
      this.#listingDue = true;
    });
  }

  /** Lists, or looks whether announcements were missed, when it is time to; one look at a time. Never rejects. */
  look(): Promise<void> {
    const due = this.#listingDue || performance.now() - this.#lookedAtMs >= this.#scanMs;
    if (!due && !this.#looking) return Promise.resolve();
    this.#looking ??= this.#look()
      .catch((error: unknown) => {
        this.#bus.log.warn({ cause: error instanceof Error ? error.message : error }, 'cannot look for jobs');
      })
      .finally(() => {
        this.#lookedAtMs = performance.now();
        this.#looking = undefined;
      });
    return this.#looking;
  }

  [Symbol.dispose](): void {
    this.#stopReconnect();
    if (!this.#bus.nc.isClosed()) this.#subscription.unsubscribe();
  }

  #onAnnouncement(subject: string, seq: number): void {
    if (seq > this.#seenSeq + 1) this.#listingDue = true;
    this.#seenSeq = Math.max(this.#seenSeq, seq);
    if (this.#events.onJob(subject, 'announced')) this.#events.onAnnounced();
  }

  async #look(): Promise<void> {
    if (this.#listingDue || (await this.#missedSome())) await this.#list();
  }

  async #missedSome(): Promise<boolean> {
    const { state, created } = await answered(this.#bus, () => this.#bus.jsm.streams.info(this.#bus.names.jobsStream));
    // An announcement may be on its way: missed is what was there one look ago and is still unseen.
    if (this.#lastSeq > this.#seenSeq || created !== this.#created) return true;
    this.#lastSeq = state.last_seq;
    return false;
  }

  async #list(): Promise<void> {
    const { jobsStream, prefix } = this.#bus.names;
    this.#listingDue = false;
    const startedAtMs = performance.now();
    try {
      const filter = { subjects_filter: `${prefix}.jobs.>` };
      const { state, created } = await answered(this.#bus, () => this.#bus.jsm.streams.info(jobsStream, filter));
      this.#seenSeq = created === this.#created ? Math.max(this.#seenSeq, state.last_seq) : state.last_seq;
      this.#lastSeq = state.last_seq;
      this.#created = created;
      for (const subject of Object.keys(state.subjects ?? {})) this.#events.onJob(subject, 'listed');
    } catch (error) {
      this.#listingDue = true;
      throw error;
    }
    this.#events.onListed(startedAtMs);
  }
}

/** Of the announced job; 0 where it is not told, as if it was not announced. The last one is the server's, after those of a publisher. */
function sequenceOf(message: Msg): number {
  return Number(readHeaders(message).headers?.last('Nats-Sequence')) || 0;
}
