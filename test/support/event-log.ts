import type { Subscription } from '@nats-io/transport-node';
import type { Bus } from '../../runner/bus/index.ts';
import type { EventKind, JobEvent } from '../../schemas/index.ts';

const EVENT_MS = 60_000;

/** The events of all jobs, as anybody sees them who subscribes: the handle for doing something at an exact point of a job. */
export class EventLog implements Disposable {
  readonly seen: JobEvent[] = [];
  readonly #subscription: Subscription;
  #onEvent: (() => void)[] = [];

  constructor(bus: Bus) {
    this.#subscription = bus.nc.subscribe(`${bus.names.prefix}.events.>`, {
      callback: (error, message) => {
        if (error) return;
        // As it comes: the ids of a dead job may be illegal, and an error thrown here would break the connection.
        this.seen.push(message.json<JobEvent>());
        const waiting = this.#onEvent;
        this.#onEvent = [];
        for (const wake of waiting) wake();
      },
    });
  }

  of(batch: string, kind: EventKind): JobEvent[] {
    return this.seen.filter((event) => event.batch_id === batch && event.kind === kind);
  }

  /** The n-th event of a kind in a batch, from 1; the first by default. @throws when it does not come */
  async next(batch: string, kind: EventKind, { n = 1, withinMs = EVENT_MS } = {}): Promise<JobEvent> {
    const endMs = performance.now() + withinMs;
    for (;;) {
      const event = this.of(batch, kind)[n - 1];
      if (event) return event;
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) {
        const told = this.seen.filter(({ batch_id }) => batch_id === batch).map(({ kind: was }) => was);
        throw new Error(`event ${n} of ${kind} of ${batch} did not come; there were ${told.join(', ') || 'none'}`);
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#onEvent.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  [Symbol.dispose](): void {
    this.#subscription.unsubscribe();
  }
}
