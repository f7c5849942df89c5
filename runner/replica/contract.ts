import type { Duplex } from 'node:stream';
import type { Guest } from '../../functions/guest.ts';
import type { Accelerator, InputAction, ReplicaPhase } from '../../schemas/index.ts';

export { ActionRejected, MaybeDelivered, ReplicaLost } from '../qemu/errors.ts';
export { longestMs } from '../qemu/patience.ts';

/** A virtual machine, or a stand-in that says so in `accelerator`. Used for one attempt, then discarded. */
export interface Replica extends AsyncDisposable {
  readonly id: string;
  readonly image: ImageRef;
  readonly accelerator: Accelerator;
  readonly phase: ReplicaPhase;
  readonly guest: Guest;
  /** Aborted with the cause (`ReplicaLost`) the moment the machine is gone: QEMU exit, kernel panic, discard. */
  readonly lost: AbortSignal;
  /** Takes a picture: PNG of the image's resolution, mouse pointer included. A read: may be repeated. */
  screenshot(signal: AbortSignal): Promise<Buffer>;
  /**
   * Sends one action to the guest's mouse or keyboard. Resolves when it is delivered, not when the desktop is done with it.
   * @throws ActionRejected nothing was sent (a point outside the screen, an unknown key)
   * @throws MaybeDelivered it may have landed; never to be repeated
   */
  act(action: InputAction, signal: AbortSignal): Promise<void>;
  /** Waits until the desktop is at rest. @returns false when it was not in time */
  settle(limits: SettleLimits, signal: AbortSignal): Promise<boolean>;
  /**
   * Gives the programs of the guest their one way out: what connects to the proxy that they are told of is handed to `network.accept`.
   * Of each replica once. @throws GuestSilent, HelperError
   */
  openNetwork(network: NetworkEnd, signal: AbortSignal): Promise<void>;
  /** What is left to look at when something went wrong; never throws, whatever state the machine is in. */
  diagnostics(): Promise<Diagnostics>;
  /** Kills it and removes everything it owned; idempotent, off the critical path. */
  discard(): Promise<void>;
}

/** Who answers what a guest's programs ask for. */
export interface NetworkEnd {
  /** A connection, which half-closes as one of TCP does. */
  accept(connection: Duplex): void;
  /** Told once why there is no network any more. */
  closed(reason: string): void;
}

export interface SettleLimits {
  /** For so long the desktop must have been at rest. */
  minMs: number;
  /** Time it has to come to rest, in the guest's own time: what it spends waiting for a busy host does not count. */
  maxMs: number;
}

export interface ImageRef {
  name: string;
  digest: string;
}

export interface Diagnostics {
  /** Tail of the serial console, at most 256 KiB. */
  serialLog: Buffer;
  /** A fresh picture if it can be had within some seconds, else the last one taken. */
  lastPicture: Buffer | null;
  /** The named cause of its death or silence, e.g. `qemu exited with signal SIGKILL`. */
  cause: string | null;
}

/** A ready replica set aside, so that a runner may ask the bus for a job. */
export interface Reservation {
  readonly image: ImageRef;
  /**
   * Hands the replica out: finishes the gate of a frozen one or sets the clock of a hot one, under a deadline.
   * One that fails is discarded and another is taken.
   * @throws ClaimFailed after three tries or the deadline
   */
  claim(signal: AbortSignal): Promise<Replica>;
  /** Gives it back unused; idempotent; after `claim` it does nothing. */
  release(): void;
}

export interface ReplicaPool extends AsyncDisposable {
  readonly images: readonly ImageRef[];
  readonly accelerator: Accelerator;
  /** Sets a ready replica aside; null when none is ready or as many act as the host may carry. Synchronous: never oversubscribes. */
  reserve(imageName: string): Reservation | null;
  /** Tells how many jobs wait for an image, as far as is known: its warm replicas follow. */
  expect(imageName: string, waiting: number): void;
  /** Why no job for this image may be taken now, e.g. `disk: 1.2 GiB free, floor is 2 GiB`; null when nothing is wrong. */
  troubleOf(imageName: string): string | null;
  /** Why the host has refused reservations for some time, for want of memory or disk; null when it has not. */
  refusalOf(imageName: string): string | null;
  /** Replicas by phase, over all images. */
  phases(): Partial<Record<ReplicaPhase, number>>;
  /** Resolves when one may be reserved, or on abort. */
  waitReady(imageName: string, signal: AbortSignal): Promise<void>;
}

/** No replica could be made ready within the deadline: the host's trouble, not the job's. */
export class ClaimFailed extends Error {
  override readonly name = 'ClaimFailed';
}
