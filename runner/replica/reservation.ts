import { ClaimFailed, type ImageRef, type Replica, type Reservation } from './contract.ts';
import type { VirtualReplica } from './replica.ts';
import type { Shelf } from './shelf.ts';

/** A hot one takes 15 ms, a frozen one half a second, a new one after a failure some seconds: on a starved host, many times that. */
const CLAIM_DEADLINE_MS = 60_000;
const CLAIM_TRIES = 3;

/** A place to act, as the pool counts them. */
export interface Place {
  free(): void;
  nextReady(signal: AbortSignal): Promise<VirtualReplica>;
  log(error: unknown, replicaId: string): void;
  /** @param ok whether a replica was handed out */
  claimed(milliseconds: number, ok: boolean): void;
}

export class PoolReservation implements Reservation {
  readonly image: ImageRef;
  readonly #shelf: Shelf;
  readonly #place: Place;
  #replica: VirtualReplica | null;

  constructor(shelf: Shelf, replica: VirtualReplica, place: Place) {
    this.image = shelf.image;
    this.#shelf = shelf;
    this.#replica = replica;
    this.#place = place;
  }

  async claim(signal: AbortSignal): Promise<Replica> {
    let replica = this.#replica;
    if (!replica) throw new ClaimFailed('this reservation was already claimed or released');
    if (signal.aborted) {
      // Nothing was done to the replica yet: it is as good as before.
      this.release();
      throw signal.reason;
    }
    this.#replica = null;
    const startedAt = performance.now();
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(CLAIM_DEADLINE_MS)]);
    let last: unknown;
    for (let tries = 1; tries <= CLAIM_TRIES; tries += 1) {
      try {
        replica ??= await this.#place.nextReady(deadline);
        await replica.lease(deadline);
        this.#freeWhenGone(replica);
        break;
      } catch (error) {
        last = error;
        if (replica) {
          this.#place.log(error, replica.id);
          // Off the critical path; the shelf looks after its end.
          replica.discard().catch(() => undefined);
          replica = null;
        }
        if (deadline.aborted) break;
      }
    }
    if (replica) {
      this.#place.claimed(performance.now() - startedAt, true);
      return replica;
    }
    this.#place.free();
    this.#place.claimed(performance.now() - startedAt, false);
    signal.throwIfAborted();
    throw new ClaimFailed(`no replica of ${this.image.name} could be made ready: ${(last as Error).message}`, {
      cause: last,
    });
  }

  release(): void {
    const replica = this.#replica;
    if (!replica) return;
    this.#replica = null;
    this.#shelf.putBack(replica);
    this.#place.free();
  }

  /** Its place is free again when nothing of it runs any more. */
  #freeWhenGone(replica: VirtualReplica): void {
    replica.onceDiscarded(() => this.#place.free());
  }
}
