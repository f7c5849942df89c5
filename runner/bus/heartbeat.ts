import { headers } from '@nats-io/transport-node';
import { RunnerStatus } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { answered, type Patience, REQUEST_MS, untilAnswered } from './stored.ts';
import { HEARTBEAT_MS, kvSubject } from './streams.ts';

/** How long a runner that stops tries to say so; after three beats the server knows anyway. */
const GOODBYE_MS = 2_000;

/**
 * Tells who this runner is and what it does, every beat; the record expires after three missed ones.
 * Dispose stops it and removes the record.
 */
export class Heartbeat implements AsyncDisposable {
  readonly #bus: Bus;
  readonly #runner: string;
  readonly #status: () => RunnerStatus;
  readonly #timer: NodeJS.Timeout;
  readonly #stopReconnect: () => void;
  #beating: Promise<void> | undefined;
  #failing = false;
  #stopped: Promise<void> | undefined;

  /** @param status called for each beat; beats at once, and whenever `beat()` is called */
  constructor(bus: Bus, runner: string, status: () => RunnerStatus, intervalMs = HEARTBEAT_MS) {
    this.#bus = bus;
    this.#runner = runner;
    this.#status = status;
    this.#timer = setInterval(() => this.beat(), intervalMs);
    this.#stopReconnect = bus.onReconnect(() => this.beat());
    this.beat();
  }

  /** Tells now, for a change that should be seen at once; one at a time. */
  beat(): void {
    if (this.#stopped) return;
    this.#beating ??= this.#put().finally(() => {
      this.#beating = undefined;
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  get #subject(): string {
    return kvSubject(this.#bus.names.runnersBucket, this.#runner);
  }

  async #put(): Promise<void> {
    try {
      const bytes = JSON.stringify(this.#status());
      await answered(this.#bus, () => this.#bus.js.publish(this.#subject, bytes, { timeout: REQUEST_MS }));
      this.#failing = false;
    } catch (error) {
      if (!this.#failing) this.#bus.log.warn({ cause: String(error) }, 'heartbeat not written');
      this.#failing = true;
    }
  }

  async #stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopReconnect();
    await this.#beating;
    const deleted = headers();
    deleted.set('KV-Operation', 'DEL');
    try {
      const options = { headers: deleted, timeout: GOODBYE_MS };
      await answered(this.#bus, () => this.#bus.js.publish(this.#subject, '', options));
    } catch (error) {
      this.#bus.log.warn({ cause: String(error) }, 'heartbeat not removed; it expires by itself');
    }
  }
}

/** The live runners. @throws the signal's reason when the bus stays away until then */
export function readRunners(bus: Bus, patience?: Patience): Promise<RunnerStatus[]> {
  const bucket = bus.names.runnersBucket;
  return untilAnswered(
    bus,
    'runners',
    () =>
      answered(bus, async () => {
        const filter = { multi_last: [kvSubject(bucket, '>')] };
        const runners: RunnerStatus[] = [];
        for await (const { data } of await bus.jsm.direct.getLastMessagesFor(`KV_${bucket}`, filter)) {
          const status = data.length === 0 ? null : readStatus(data);
          if (status) runners.push(status);
        }
        return runners;
      }),
    patience,
  );
}

/** Null for what a later or foreign runner wrote otherwise. */
function readStatus(data: Uint8Array): RunnerStatus | null {
  try {
    return RunnerStatus.parse(JSON.parse(Buffer.from(data).toString('utf8')));
  } catch {
    return null;
  }
}
