import {
  attemptFiles,
  type Manifest,
  type Observation,
  type Result,
  type Step,
  type StoredObject,
} from '../../schemas/index.ts';
import { AttemptLog } from './attempt-log.ts';
import type { AttemptSpool, SpooledObject } from './attempt-spool.ts';
import { deadline } from './deadline.ts';
import { putManifest } from './manifest.ts';
import { pngSize } from './png.ts';
import type { ObjectStore } from './s3.ts';
import type { AttemptAddress, Spool } from './spool.ts';
import type { Uploader } from './uploader.ts';

/** What recordings share: one of each in a runner. */
export interface RecordingPlace {
  store: ObjectStore;
  spool: Spool;
  uploader: Uploader;
}

export interface FinishedAttempt {
  /** The outcome to commit. A function is called when all else is in S3, with the milliseconds that took: `upload_tail`. */
  outcome: Result | ((uploadTailMs: number) => Result);
  versions: Record<string, string>;
}

/**
 * Everything recorded of one attempt. What resolves is on local disk, and on its way to S3.
 * Ends in one of two ways: `finish` (all in S3, then the manifest) or `leave` (what there is, no manifest); disposing it
 * drops the local copy, whichever it was.
 */
export class Recording implements AsyncDisposable {
  readonly address: AttemptAddress;
  /** `s3://` URL of the attempt's folder, ending in a slash. */
  readonly url: string;
  /** A pino destination for this attempt's lines. */
  readonly log: AttemptLog;
  /** Aborted with the reason once something recorded cannot be stored: playing on would be for nothing. */
  readonly failed: AbortSignal;
  readonly #place: RecordingPlace;
  readonly #spool: AttemptSpool;

  private constructor(place: RecordingPlace, address: AttemptAddress, spool: AttemptSpool, signal: AbortSignal) {
    this.address = address;
    this.url = place.store.url(spool.record.prefix);
    this.log = new AttemptLog(spool);
    this.#place = place;
    this.#spool = spool;
    this.failed = place.uploader.take(spool, signal);
  }

  /**
   * Begins to record.
   * @param jobBytes the job's message as received, kept as `job.json`
   * @param signal of the attempt: when it aborts nothing more goes up @throws StorageFull
   */
  static async begin(
    place: RecordingPlace,
    address: AttemptAddress,
    jobBytes: Uint8Array,
    signal: AbortSignal,
  ): Promise<Recording> {
    const spool = await place.spool.begin(address);
    try {
      await spool.writeObject(attemptFiles.job, jobBytes);
      return new Recording(place, address, spool, signal);
    } catch (error) {
      await spool.remove();
      throw error;
    }
  }

  /** @param step 0 for the reset observation @throws ObjectDamaged when the picture is not whole; StorageFull */
  async screenshot(step: number, png: Buffer): Promise<NonNullable<Observation['screenshot']>> {
    const size = pngSize(png);
    return { ...stored(await this.#spool.writeObject(attemptFiles.screenshot(step), png)), ...size };
  }

  /** @param xml the accessibility tree beside the picture of that step @throws StorageFull */
  async a11yTree(step: number, xml: string): Promise<StoredObject> {
    return stored(await this.#spool.writeObject(attemptFiles.a11yTree(step), Buffer.from(xml)));
  }

  /** Appends a line to the trajectory, in order from 0. @throws StorageFull */
  step(line: Step): Promise<void> {
    return this.#spool.append(attemptFiles.trajectory, `${JSON.stringify(line)}\n`);
  }

  /** Appends a line to the record of the set-up. @throws StorageFull */
  setup(line: object): Promise<void> {
    return this.#spool.append(attemptFiles.setup, `${JSON.stringify(line)}\n`);
  }

  /** Keeps what is left to look at of a replica. @throws StorageFull */
  async diagnostics(found: { serialLog: Buffer; lastPicture: Buffer | null }): Promise<void> {
    await this.#spool.writeObject(attemptFiles.serial, found.serialLog);
    if (found.lastPicture) await this.#spool.writeObject(attemptFiles.lastPicture, found.lastPicture);
  }

  /**
   * Everything into S3, then the manifest. The outcome may be committed when this has resolved, and not before.
   * @param signal ends the wait while S3 is away @throws StorageRefused, ObjectDamaged, StorageFull, the signal's reason
   */
  async finish(attempt: FinishedAttempt, signal: AbortSignal): Promise<Manifest> {
    const startedAt = performance.now();
    await this.#complete(signal);
    const tailMs = Math.round(performance.now() - startedAt);
    const outcome = typeof attempt.outcome === 'function' ? attempt.outcome(tailMs) : attempt.outcome;
    return putManifest(this.#place.uploader, this.#spool, { outcome, versions: attempt.versions }, signal);
  }

  /**
   * Gives the attempt up: what was recorded goes up as far as `forMs` allow, and no manifest. Never throws.
   * @returns whether all of it is in S3
   */
  async leave(forMs: number): Promise<boolean> {
    const limit = deadline(undefined, forMs, () => new Error(`not uploaded within ${forMs} ms`));
    try {
      await this.#complete(limit.signal);
      return true;
    } catch {
      return false;
    } finally {
      limit.clear();
    }
  }

  async #complete(signal: AbortSignal): Promise<void> {
    await this.log.end();
    await this.#spool.seal();
    await this.#place.uploader.flush(this.address.attempt, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.log.end();
    await this.#place.uploader.drop(this.address.attempt);
    await this.#spool.remove();
  }
}

function stored({ key, bytes, sha256 }: SpooledObject): StoredObject {
  return { key, bytes, sha256 };
}
