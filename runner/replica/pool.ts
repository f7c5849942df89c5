import { EventEmitter, once } from 'node:events';
import type { Accelerator, ReplicaPhase } from '../../schemas/index.ts';
import { availableMemory, type Capacity, gib, MEMORY_FLOOR_BYTES } from './capacity.ts';
import { ClaimFailed, type ImageRef, type Replica, type ReplicaPool, type Reservation } from './contract.ts';
import type { Engine } from './engine.ts';
import type { VirtualReplica } from './replica.ts';
import type { Shelf } from './shelf.ts';

/** A hot one takes 15 ms, a frozen one half a second, a new one after a failure some seconds: on a starved host, many times that. */
const CLAIM_DEADLINE_MS = 60_000;
const CLAIM_TRIES = 3;
/** Memory and disk change slowly against this. */
const ROOM_CHECK_MS = 2_000;

export interface PoolSettings {
  capacity: Capacity;
  diskFloorBytes: number;
}

/**
 * Keeps ready replicas of each image and hands them out. Whoever acts is counted from the reservation until the discard,
 * so that no more act than the host may carry, whatever happens in between.
 */
export class VirtualPool implements ReplicaPool {
  readonly images: readonly ImageRef[];
  readonly accelerator: Accelerator;
  readonly capacity: Capacity;
  readonly #engine: Engine;
  readonly #shelves: ReadonlyMap<string, Shelf>;
  readonly #changes = new EventEmitter<{ change: [] }>();
  readonly #acting = new Set<object>();
  readonly #floorBytes: number;
  #roomTrouble: string | null = null;
  #timer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | undefined;

  constructor(engine: Engine, makeShelves: (changed: () => void) => Shelf[], settings: PoolSettings) {
    this.#changes.setMaxListeners(0);
    const shelves = makeShelves(() => this.#changes.emit('change'));
    this.#shelves = new Map(shelves.map((shelf) => [shelf.image.name, shelf]));
    this.images = shelves.map((shelf) => shelf.image);
    this.accelerator = engine.accelerator;
    this.capacity = settings.capacity;
    this.#engine = engine;
    this.#floorBytes = settings.diskFloorBytes;
    void this.#watchRoom();
  }

  get trouble(): string | null {
    if (this.#roomTrouble) return this.#roomTrouble;
    for (const shelf of this.#shelves.values()) if (shelf.trouble) return shelf.trouble;
    return null;
  }

  reserve(imageName: string): Reservation | null {
    const shelf = this.#shelves.get(imageName);
    if (this.#closed || !shelf || this.#acting.size >= this.capacity.acting) return null;
    const replica = shelf.take();
    if (!replica) return null;
    const place = {};
    this.#acting.add(place);
    return new PoolReservation(shelf, replica, {
      free: () => {
        this.#acting.delete(place);
        this.#changes.emit('change');
      },
      nextReady: (signal) => this.#takeReady(shelf, signal),
      log: (error, id) => this.#engine.log.warn({ err: error, replica: id }, 'claim failed, another replica is taken'),
    });
  }

  phases(): Partial<Record<ReplicaPhase, number>> {
    const counts: Partial<Record<ReplicaPhase, number>> = {};
    for (const shelf of this.#shelves.values()) {
      for (const { phase } of shelf.members) counts[phase] = (counts[phase] ?? 0) + 1;
    }
    return counts;
  }

  async waitReady(imageName: string, signal: AbortSignal): Promise<void> {
    const shelf = this.#shelves.get(imageName);
    while (!signal.aborted && !this.#closed) {
      if (shelf?.available() && this.#acting.size < this.capacity.acting) return;
      await once(this.#changes, 'change', { signal }).catch(() => undefined);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#changes.emit('change');
    await Promise.all([...this.#shelves.values()].map((shelf) => shelf.close()));
  }

  async #takeReady(shelf: Shelf, signal: AbortSignal): Promise<VirtualReplica> {
    for (;;) {
      signal.throwIfAborted();
      if (this.#closed) throw new Error('the pool is closed');
      const replica = shelf.take();
      if (replica) return replica;
      await once(this.#changes, 'change', { signal });
    }
  }

  /** No room, no new replicas: those there are live on. */
  async #watchRoom(): Promise<void> {
    try {
      this.#roomTrouble = await this.#lackOfRoom();
    } catch (error) {
      this.#roomTrouble = `room on this host is unknown: ${(error as Error).message}`;
    }
    if (this.#closed) return;
    for (const shelf of this.#shelves.values()) shelf.hold(this.#roomTrouble);
    this.#timer = setTimeout(() => void this.#watchRoom(), ROOM_CHECK_MS);
    this.#timer.unref();
  }

  async #lackOfRoom(): Promise<string | null> {
    const disk = await this.#engine.area.freeBytes();
    if (disk < this.#floorBytes) return `disk: ${gib(disk)} GiB free, floor is ${gib(this.#floorBytes)} GiB`;
    const memory = await availableMemory();
    if (memory < MEMORY_FLOOR_BYTES) {
      return `memory: ${gib(memory)} GiB free, floor is ${gib(MEMORY_FLOOR_BYTES)} GiB`;
    }
    return null;
  }
}

interface Place {
  free(): void;
  nextReady(signal: AbortSignal): Promise<VirtualReplica>;
  log(error: unknown, replicaId: string): void;
}

class PoolReservation implements Reservation {
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
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(CLAIM_DEADLINE_MS)]);
    let last: unknown;
    for (let tries = 1; tries <= CLAIM_TRIES; tries += 1) {
      try {
        replica ??= await this.#place.nextReady(deadline);
        await replica.lease(deadline);
        this.#freeWhenGone(replica);
        return replica;
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
    this.#place.free();
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
