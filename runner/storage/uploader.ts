import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { AttemptSpool } from './attempt-spool.ts';
import { ObjectDamaged, StorageAway, StorageRefused } from './errors.ts';
import type { CallOptions, FileBody, ObjectStore } from './s3.ts';
import { UploadLane } from './upload-lane.ts';

export type StorageHealth =
  | { ok: true }
  /** `refused`: it is there and says no, which waiting does not mend. */
  | { ok: false; since: string; error: string; refused: boolean };

export interface UploaderOptions {
  /** Puts at once, over all attempts. */
  concurrency?: number;
  /** Least time between two puts of a growing file. */
  growthMs?: number;
  /** How long a refused put is tried again before its attempt fails: time to renew a key. */
  refusedMs?: number;
  /** Pause between two looks at an S3 that was away, when there is nothing to upload that would tell. */
  probeMs?: number;
}

/** Two rounds put right what a server lost once; a third finds a server that does not keep things. */
const VERIFY_ROUNDS = 3;

/**
 * Uploads what recorders write, while they write. One for the runner: `concurrency` puts at a time go round the attempts,
 * so a long one does not hold up a short one. While S3 is away every put in flight is tried again, with growing pauses,
 * for as long as its attempt lives. Memory: `concurrency` files of at most 1 MiB or as many streams; the rest is names.
 */
export class Uploader implements AsyncDisposable {
  readonly #store: ObjectStore;
  readonly #log: Logger;
  readonly #concurrency: number;
  readonly #growthMs: number;
  readonly #refusedMs: number;
  readonly #probeMs: number;
  readonly #lanes = new Map<string, UploadLane>();
  readonly #closed = new AbortController();
  /** Attempts in the order of their turns. */
  #turns: UploadLane[] = [];
  #active = 0;
  #trouble: { since: Date; error: string; refused: boolean } | null = null;
  #watching: Promise<void> | undefined;

  constructor(store: ObjectStore, log: Logger, options: UploaderOptions = {}) {
    this.#store = store;
    this.#log = log;
    this.#concurrency = options.concurrency ?? 8;
    this.#growthMs = options.growthMs ?? 1_000;
    this.#refusedMs = options.refusedMs ?? 30_000;
    this.#probeMs = options.probeMs ?? 5_000;
  }

  /** Whether S3 takes what it is given; not ok from the first failed put until one succeeds. */
  get health(): StorageHealth {
    if (this.#trouble === null) return { ok: true };
    const { since, error, refused } = this.#trouble;
    return { ok: false, since: since.toISOString(), error, refused };
  }

  /**
   * Takes an attempt on: from now on what is written to its spool goes up.
   * @param signal ends all tries for this attempt @returns aborted with the reason once a file of it cannot be stored
   */
  take(spool: AttemptSpool, signal: AbortSignal): AbortSignal {
    if (this.#lanes.has(spool.attempt)) throw new Error(`attempt ${spool.attempt} is uploading already`);
    this.#closed.signal.throwIfAborted();
    const lane = new UploadLane(spool, signal, this.#growthMs, () => this.#pump());
    this.#lanes.set(spool.attempt, lane);
    this.#turns.push(lane);
    this.#pump();
    return lane.failed;
  }

  /**
   * Resolves when everything of the attempt is in S3 at its full length, as a listing says.
   * @throws StorageRefused, ObjectDamaged; the reason of `signal` or of the attempt's own
   */
  async flush(attempt: string, signal: AbortSignal): Promise<void> {
    const lane = this.#lane(attempt);
    lane.hurry();
    for (let round = 1; ; round++) {
      await lane.settled(signal);
      const wrong = await this.#differences(lane, signal);
      if (wrong.length === 0) return;
      if (round === VERIFY_ROUNDS) {
        throw new ObjectDamaged(
          `S3 took files of attempt ${attempt} and does not have them (name, bytes put, bytes found): ${JSON.stringify(wrong)}`,
        );
      }
      this.#log.warn({ attempt, wrong }, 'files are not in S3 as they were put; putting them again');
      lane.again(wrong.map(([name]) => name));
    }
  }

  /** Name, bytes put, bytes found (null: not there) of each file that is not in S3 as it was put. */
  async #differences(lane: UploadLane, signal: AbortSignal): Promise<[string, number, number | null][]> {
    const { prefix } = lane.spool.record;
    const found = new Map<string, number>();
    for await (const { key, bytes } of this.#store.list(prefix, this.#patience(signal)))
      found.set(key.slice(prefix.length), bytes);
    this.#onSuccess();
    return [...lane.storedLengths()]
      .filter(([name, bytes]) => found.get(name) !== bytes)
      .map(([name, bytes]) => [name, bytes, found.get(name) ?? null]);
  }

  /** Stops uploading an attempt and deletes its spool, whatever of it is in S3; idempotent. */
  async drop(attempt: string): Promise<void> {
    const lane = this.#lanes.get(attempt);
    if (!lane) return;
    await this.#end(lane, new Error(`attempt ${attempt} is dropped`));
    await lane.spool.remove();
  }

  /** Stops everything. Spools stay on disk, for the next start. */
  async [Symbol.asyncDispose](): Promise<void> {
    const reason = new Error('the runner stops');
    this.#closed.abort(reason);
    await Promise.all([...this.#lanes.values()].map((lane) => this.#end(lane, reason)));
    await this.#watching;
  }

  async #end(lane: UploadLane, reason: Error): Promise<void> {
    this.#turns = this.#turns.filter((other) => other !== lane);
    await lane.stop(reason);
    this.#lanes.delete(lane.spool.attempt);
  }

  #lane(attempt: string): UploadLane {
    const lane = this.#lanes.get(attempt);
    if (!lane) throw new Error(`attempt ${attempt} is not uploading`);
    return lane;
  }

  #pump(): void {
    while (this.#active < this.#concurrency) {
      const next = this.#next();
      if (!next) return;
      this.#active++;
      void this.#upload(next.lane, next.name).finally(() => {
        this.#active--;
        this.#pump();
      });
    }
  }

  #next(): { lane: UploadLane; name: string } | undefined {
    for (let turn = this.#turns.length; turn > 0; turn--) {
      const lane = this.#turns.shift();
      if (!lane) return undefined;
      this.#turns.push(lane);
      const name = lane.take();
      if (name !== undefined) return { lane, name };
    }
    return undefined;
  }

  async #upload(lane: UploadLane, name: string): Promise<void> {
    try {
      const body = lane.spool.body(name);
      await this.put(lane.spool.keyOf(name), body, body.contentType, lane.signal);
      lane.stored(name, body.bytes);
    } catch (error) {
      if (!lane.signal.aborted) this.#log.error({ err: error, attempt: lane.spool.attempt, name }, 'file not stored');
      lane.notStored(name, error);
    }
  }

  /**
   * Puts one file with the uploader's patience: while S3 is away for as long as `signal` allows, when it refuses for
   * `refusedMs`. Counts for `health`, not for `concurrency`.
   */
  async put(key: string, file: FileBody, contentType: string, signal: AbortSignal): Promise<void> {
    await this.#store.putFile(key, file, contentType, this.#patience(signal));
    this.#onSuccess();
  }

  /** Of one request, or of the pages of one listing. */
  #patience(signal: AbortSignal): CallOptions {
    let refusedAt: number | undefined;
    return {
      signal,
      patienceMs: Number.POSITIVE_INFINITY,
      onTrouble: (error) => this.#onTrouble(error),
      worthRetrying: (error) => {
        if (error instanceof StorageAway) return true;
        if (!(error instanceof StorageRefused || error instanceof ObjectDamaged)) return false;
        refusedAt ??= performance.now();
        return performance.now() - refusedAt < this.#refusedMs;
      },
    };
  }

  #onTrouble(error: Error): void {
    const refused = error instanceof StorageRefused;
    if (this.#trouble === null) {
      this.#trouble = { since: new Date(), error: error.message, refused };
      this.#log.warn({ error: error.message }, 'S3 does not take trajectories; they are kept on disk meanwhile');
      this.#watching ??= this.#watch().finally(() => {
        this.#watching = undefined;
      });
    }
    Object.assign(this.#trouble, { error: error.message, refused });
  }

  #onSuccess(): void {
    if (this.#trouble === null) return;
    this.#log.info({ away_ms: Date.now() - this.#trouble.since.getTime() }, 'S3 takes trajectories again');
    this.#trouble = null;
  }

  /** While nothing is being uploaded, nothing would tell that S3 is back. */
  async #watch(): Promise<void> {
    while (this.#trouble !== null) {
      await sleep(this.#probeMs, undefined, { signal: this.#closed.signal }).catch(() => {});
      if (this.#closed.signal.aborted) return;
      if (this.#trouble === null || this.#active > 0) continue;
      try {
        await this.#store.probe({ signal: this.#closed.signal, patienceMs: 0 });
        this.#onSuccess();
      } catch (error) {
        if (!this.#closed.signal.aborted) this.#onTrouble(error as Error);
      }
    }
  }
}
