import { setTimeout as sleep } from 'node:timers/promises';
import { Kvm, type KvWatchEntry } from '@nats-io/kv';
import { BatchRecord } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { type Edited, editStored, type Patience, type Stored } from './stored.ts';
import { kvSubject } from './streams.ts';

/** Reads what is known of a batch, from the leader; null when nothing was ever written. */
export function readBatch(bus: Bus, batch: string, patience?: Patience): Promise<BatchRecord | null> {
  const read = (stored: Stored | null) => ({ answer: stored ? readRecord(stored.data) : null });
  return editStored(bus, 'batch', placeOf(bus, batch), read, patience);
}

/**
 * Changes some fields of a batch's record, by compare-and-swap, and leaves the others.
 * @returns the record as it is now
 */
export function updateBatch(
  bus: Bus,
  batch: string,
  change: Omit<Partial<BatchRecord>, 'schema' | 'updated_at'>,
  patience?: Patience,
): Promise<BatchRecord> {
  const edit = (stored: Stored | null): Edited<BatchRecord> => {
    const record = stored ? readRecord(stored.data) : null;
    const updated = { ...record, ...change, schema: 'gymbus.batch.v1', updated_at: new Date().toISOString() };
    const next = BatchRecord.parse(updated);
    return { write: next, answer: next };
  };
  return editStored(bus, 'batch', placeOf(bus, batch), edit, patience);
}

function placeOf({ names }: Bus, batch: string): { stream: string; subject: string } {
  const bucket = names.batchesBucket;
  return { stream: `KV_${bucket}`, subject: kvSubject(bucket, batch) };
}

/** Flags and some labels. Every runner reads every record; one of 1 MiB takes it half a second. */
const MOST_RECORD_BYTES = 64 * 1024;

/** Null for a deleted key (no body), and for what is no record. */
function readRecord(data: Uint8Array): BatchRecord | null {
  if (data.length === 0 || data.length > MOST_RECORD_BYTES) return null;
  try {
    return BatchRecord.parse(JSON.parse(Buffer.from(data).toString('utf8')));
  } catch {
    return null;
  }
}

const NOTHING = { paused: false, priority: 0, cancelled: false };
const WATCH_AGAIN_MS = 1_000;

/**
 * What batches are flagged with, kept in memory by watching the bucket. What memory says may be a moment behind:
 * before a decision that stands, `isCancelled` reads.
 */
export class BatchFlags implements AsyncDisposable {
  readonly #bus: Bus;
  readonly #flags = new Map<string, typeof NOTHING>();
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;

  constructor(bus: Bus) {
    this.#bus = bus;
    this.#watching = this.#watch();
  }

  /** From memory: which batches to leave alone or to prefer. */
  standing(batch: string): { paused: boolean; priority: number; cancelled: boolean } {
    return this.#flags.get(batch) ?? NOTHING;
  }

  /** From memory when it says yes, else from the leader. @throws the signal's reason when the bus stays away until then */
  async isCancelled(batch: string, patience?: Patience): Promise<boolean> {
    if (this.standing(batch).cancelled) return true;
    return (await readBatch(this.#bus, batch, patience))?.cancelled === true;
  }

  /** Calls back once when the batch is seen to be cancelled, for a job that runs. @returns how to stop it */
  onCancelled(batch: string, callback: () => void): () => void {
    const listeners = this.#listeners.get(batch) ?? new Set();
    this.#listeners.set(batch, listeners.add(callback));
    if (this.standing(batch).cancelled) this.#tell(batch);
    return () => {
      listeners.delete(callback);
      if (listeners.size === 0 && this.#listeners.get(batch) === listeners) this.#listeners.delete(batch);
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  /** The client's watch makes its consumer anew after an outage; should it end all the same, it is begun again. */
  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted && !this.#bus.nc.isClosed()) {
      try {
        const bucket = await new Kvm(this.#bus.js).open(this.#bus.names.batchesBucket);
        const entries = await bucket.watch();
        const end = () => entries.stop();
        signal.addEventListener('abort', end, { once: true });
        try {
          if (signal.aborted) end();
          for await (const entry of entries) this.#take(entry);
        } finally {
          signal.removeEventListener('abort', end);
        }
      } catch (error) {
        this.#bus.log.debug({ cause: String(error) }, 'cannot watch batches; trying again');
      }
      if (!signal.aborted) await sleep(WATCH_AGAIN_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  #take(entry: KvWatchEntry): void {
    // By its body alone, as `readBatch`: a key that was deleted has none, and headers are whatever somebody wrote.
    const record = readRecord(entry.value);
    const { paused = false, priority = 0, cancelled = false } = record ?? {};
    // Most batches carry no flag: only those that do are kept.
    if (!paused && priority === 0 && !cancelled) this.#flags.delete(entry.key);
    else this.#flags.set(entry.key, { paused, priority, cancelled });
    if (cancelled) this.#tell(entry.key);
  }

  #tell(batch: string): void {
    const listeners = this.#listeners.get(batch);
    this.#listeners.delete(batch);
    for (const listener of listeners ?? []) listener();
  }
}
