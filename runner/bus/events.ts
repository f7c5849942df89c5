import type { JobEvent } from '../../schemas/index.ts';
import type { Bus } from './index.ts';

/** Bytes handed to the connection and not yet known to be taken by the server. */
const MAX_UNFLUSHED_BYTES = 1_048_576;
/** How often it is told that events were dropped. */
const TELL_MS = 30_000;

/**
 * Publishes what jobs do, for watching. Best effort: never waits, never throws, and drops events while the bus is away
 * or slow, so that watching costs a job nothing.
 */
export class Events {
  readonly #bus: Bus;
  #unflushedBytes = 0;
  #flushing = false;
  #dropped = 0;
  #toldAtMs = Number.NEGATIVE_INFINITY;

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  /** Events dropped since the start. */
  get dropped(): number {
    return this.#dropped;
  }

  emit(event: JobEvent): void {
    const bytes = Buffer.from(JSON.stringify(event));
    if (!this.#bus.connected || this.#unflushedBytes + bytes.length > MAX_UNFLUSHED_BYTES) {
      this.#drop();
      return;
    }
    try {
      this.#bus.nc.publish(this.#bus.names.eventSubject(event.batch_id, event.job_id, event.kind), bytes);
    } catch (error) {
      this.#bus.log.debug({ err: error, kind: event.kind }, 'event not published');
      this.#drop();
      return;
    }
    this.#unflushedBytes += bytes.length;
    if (!this.#flushing) void this.#flush();
  }

  #drop(): void {
    this.#dropped += 1;
    if (performance.now() - this.#toldAtMs < TELL_MS) return;
    this.#toldAtMs = performance.now();
    this.#bus.log.warn({ dropped: this.#dropped }, 'events dropped: the bus is away or slow');
  }

  /** A flush is a round trip: when it is back, the server has read all that was written before. */
  async #flush(): Promise<void> {
    this.#flushing = true;
    try {
      while (this.#unflushedBytes > 0 && this.#bus.connected) {
        const covered = this.#unflushedBytes;
        // Rejects when the connection is lost.
        await this.#bus.nc.flush();
        this.#unflushedBytes -= covered;
      }
    } catch (error) {
      this.#bus.log.debug({ err: error }, 'events not flushed');
    } finally {
      // What a lost connection had is lost or repeated by the client; nothing waits for it.
      if (!this.#bus.connected) this.#unflushedBytes = 0;
      this.#flushing = false;
    }
  }
}
