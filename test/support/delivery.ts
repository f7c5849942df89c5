import { setTimeout as sleep } from 'node:timers/promises';
import { headers as newHeaders } from '@nats-io/transport-node';
import { builtinFunctions } from '../../functions/registry.ts';
import { readAttempts } from '../../runner/bus/attempts.ts';
import { BatchFlags } from '../../runner/bus/batch-flags.ts';
import { readOutcome } from '../../runner/bus/outcomes.ts';
import type { JobMessage } from '../../runner/bus/pull.ts';
import { deliver } from '../../runner/job/delivery.ts';
import type { DeliverySummary } from '../../runner/job/delivery-context.ts';
import type { Player } from '../../runner/job/player.ts';
import { type Replica, ReplicaLost, type ReplicaPool, type Reservation } from '../../runner/replica/contract.ts';
import { type EventKind, messageId, objectKeys, type ReplicaPhase, Result } from '../../schemas/index.ts';
import { pullOne } from './bus-jobs.ts';
import { Desk } from './desk.ts';
import type { TestPlace } from './recording.ts';
import { samplePng } from './samples.ts';
import type { TestServers } from './servers.ts';

/** A desk whose pictures are real ones, and that tells whether it was given back. */
export class PictureDesk extends Desk {
  discards = 0;
  readonly #png = samplePng();

  override async screenshot(signal: AbortSignal): Promise<Buffer> {
    await super.screenshot(signal);
    return this.#png;
  }

  override async discard(): Promise<void> {
    this.discards++;
    this.die(new Error('discarded'));
  }
}

/** A runner without virtual machines: its deliveries are the real ones, over a real bus and a real S3. */
export class TestRunner implements AsyncDisposable {
  readonly player: Player;
  readonly servers: TestServers;
  readonly events: { kind: EventKind; data: Record<string, unknown> }[] = [];

  constructor(servers: TestServers, place: TestPlace = servers.place, change: Partial<Player> = {}) {
    this.servers = servers;
    this.player = {
      runner: 'host-a',
      bus: servers.bus,
      place,
      functions: builtinFunctions,
      look: { settle: { minMs: 0, maxMs: 20 }, pictureMs: 1_000, tries: 3 },
      downloads: { maxBytes: 1e6, allowPrivate: false },
      allowedHosts: () => [],
      versions: {},
      log: place.log,
      flags: new BatchFlags(servers.bus),
      emit: (kind, _address, _attempt, data) => void this.events.push({ kind, data }),
      ...change,
    };
  }

  /** Publishes any body as a job. */
  async publish(batch: string, body: object | string, headers: Record<string, string> = {}): Promise<void> {
    const { bus } = this.servers;
    const added = newHeaders();
    for (const [name, value] of Object.entries(headers)) added.set(name, value);
    const subject = bus.names.jobSubject({ image: 'debian-desktop', batch, job: 'j' });
    const bytes = typeof body === 'string' ? body : JSON.stringify(jobOf(batch, body));
    await bus.js.publish(subject, bytes, { msgID: messageId(batch, `j-${Math.random()}`), headers: added });
  }

  /** Takes the batch's job and sees it to its end. */
  async deliver(batch: string, options: DeliverOptions = {}): Promise<DeliverySummary> {
    const { ackWaitMs = 30_000, desk = new PictureDesk(), stop = new AbortController().signal } = options;
    const message = await pullOne(this.servers.bus, ackWaitMs, batch);
    await options.pulled?.(message);
    return deliver(this.player, { message, ackWaitMs }, reservationOf(desk), stop);
  }

  outcome(batch: string) {
    return readOutcome(this.servers.bus, batch, 'j');
  }

  async attempts(batch: string) {
    return (await readAttempts(this.servers.bus, batch, 'j'))?.attempts ?? [];
  }

  async resultJson(batch: string): Promise<Result> {
    const bytes = await this.servers.place.store.get(objectKeys.result(batch, 'j'), 1e7);
    return Result.parse(JSON.parse(String(bytes)));
  }

  async queued(batch: string): Promise<boolean> {
    const { bus } = this.servers;
    const filter = { subjects_filter: bus.names.jobSubject({ image: '*', batch, job: '*' }) };
    return Object.keys((await bus.jsm.streams.info(bus.names.jobsStream, filter)).state.subjects ?? {}).length > 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.player.flags[Symbol.asyncDispose]();
  }
}

interface DeliverOptions {
  ackWaitMs?: number;
  desk?: Replica;
  stop?: AbortSignal;
  /** Done between the pull and the delivery. */
  pulled?: (message: JobMessage) => Promise<unknown>;
}

function jobOf(batch: string, change: object): object {
  return {
    schema: 'gymbus.job.v1',
    ...{ batch_id: batch, job_id: 'j', image: 'debian-desktop', instruction: 'Write hello.' },
    policy: { name: 'scripted', params: { actions: [{ type: 'type', text: 'hello' }, { type: 'done' }] } },
    ...change,
  };
}

/** Desks, at most so many at a time, each used once. */
export class DeskPool implements ReplicaPool {
  readonly images = [{ name: 'debian-desktop', digest: 'd' }];
  readonly accelerator = 'simulated';
  readonly #places: number;
  readonly #desks = new Set<PictureDesk>();
  readonly #claimed = new Set<PictureDesk>();

  constructor(places: number) {
    this.#places = places;
  }

  reserve(): Reservation | null {
    if (this.#desks.size >= this.#places) return null;
    const desk = new PictureDesk();
    this.#desks.add(desk);
    desk.lost.addEventListener('abort', () => this.#desks.delete(desk) && this.#claimed.delete(desk), { once: true });
    const claim = async (): Promise<Replica> => {
      this.#claimed.add(desk);
      return desk;
    };
    return { image: desk.image, claim, release: () => !this.#claimed.has(desk) && this.#desks.delete(desk) };
  }

  /** Ends one that is being used, as a machine that died. @returns whether there was one */
  kill(): boolean {
    const [desk] = this.#claimed;
    desk?.die(new ReplicaLost('qemu exited with signal SIGKILL'));
    return desk !== undefined;
  }

  expect(): void {}

  troubleOf(): null {
    return null;
  }

  refusalOf(): null {
    return null;
  }

  phases(): Partial<Record<ReplicaPhase, number>> {
    return { leased: this.#desks.size };
  }

  async waitReady(_image: string, signal: AbortSignal): Promise<void> {
    await sleep(20, undefined, { signal }).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

/** For a delivery that plays nothing. */
export const noReservation: Reservation = {
  image: { name: 'debian-desktop', digest: 'd' },
  claim: () => Promise.reject(new Error('nothing is to be claimed')),
  release: () => undefined,
};

export function reservationOf(replica: Replica): Reservation {
  return { image: replica.image, claim: async () => replica, release: () => undefined };
}
