import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { RequestError } from '@nats-io/transport-node';
import type { Bus, Reconnection } from './index.ts';
import type { JobMessage } from './pull.ts';
import { REQUEST_MS } from './stored.ts';

/*
 * A lease is our hold on one delivered job. The server gives the job to somebody else once ack_wait has passed since the
 * delivery or the last beat it received, and tells us nothing. So we count ourselves, on the monotonic clock, from the
 * moment a beat was *sent* that the server later confirmed: never later than the server counts.
 * A server writes deliveries and beats to disk a moment after they happened. One that was killed meanwhile has forgotten
 * them, and tells nothing of that either: it confirms beats of a job that it gives to somebody else. So after a restart
 * only what it surely wrote counts.
 * Once lost, a lease never comes back: the job may be played elsewhere, and only the fence decides whose outcome stands.
 */

/** Our hold on the job is over: stop acting in the guest. Nothing is wrong with the job. */
export class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/**
 * How settling went. `confirmed`: the server has it. `gone`: the consumer that delivered the job is no more, so the
 * job may come again: read its outcome. `unconfirmed`: no answer; the job comes again after ack_wait, or not.
 * `lost`: not sent, for the job may be another's by now.
 */
type Settled = 'confirmed' | 'gone' | 'unconfirmed' | 'lost';

export interface Lease extends Disposable {
  readonly message: JobMessage;
  /** Aborted with `LeaseLost` when no beat was confirmed for ack_wait, when the server may have forgotten us, or after `deliverLimitMs`. */
  readonly held: AbortSignal;
  /** For the moment before something that cannot be undone: a process that was frozen wakes before its timers. @throws LeaseLost */
  assertHeld(): void;
  /** The same as an answer. */
  isHeld(): boolean;
  /** Removes the job from the queue: only after its outcome is committed. Sent even when the lease is lost. */
  ack(): Promise<Settled>;
  /** Gives the job back, to be delivered again after `delayMs`. Repeated for no longer than `withinMs`, where that is given. */
  nak(delayMs?: number, withinMs?: number): Promise<Settled>;
  /** Removes the job with a reason for the server's advisory: only after its outcome is committed. */
  term(reason: string): Promise<Settled>;
}

export interface LeaseSettings {
  /** The consumer's, as the server has it. */
  ackWaitMs: number;
  /** Bound of the whole delivery. */
  deliverLimitMs?: number;
  /** How long a settlement is repeated until it is confirmed. */
  settleMs?: number;
}

/** No job takes longer; a runner that hangs in one gives it up. */
export const DELIVER_LIMIT_MS = 6 * 3_600_000;
const SETTLE_MS = 30_000;

/** nats-server writes a consumer's state within 0.1 s, ten times more on a slow disk; the times in it are whole seconds. */
const WRITTEN_MS = 1_000;
const WHOLE_SECOND_MS = 1_000;

/** A delivery or a beat that the server has answered: counted from when it was sent, known to the server since. */
interface Mark {
  sentAtMs: number;
  answeredAtMs: number;
}

/** Starts beating at once, every third of ack_wait. Dispose to stop; a lease disposed unsettled is left to ack_wait. */
export function holdLease(bus: Bus, message: JobMessage, settings: LeaseSettings): Lease {
  return new HeldLease(bus, message, settings);
}

class HeldLease implements Lease {
  readonly message: JobMessage;
  readonly #bus: Bus;
  readonly #lost = new AbortController();
  readonly #ackWaitMs: number;
  readonly #settleMs: number;
  readonly #limitAtMs: number;
  readonly #stopReconnect: () => void;
  /** The last one, and the one before. */
  #marks: [Mark, Mark | null];
  #heldUntilMs: number;
  #beating = true;
  #settled: Promise<Settled> | undefined;
  #beatTimer: NodeJS.Timeout | undefined;
  #expiryTimer: NodeJS.Timeout | undefined;

  constructor(bus: Bus, message: JobMessage, settings: LeaseSettings) {
    this.#bus = bus;
    this.message = message;
    this.#ackWaitMs = settings.ackWaitMs;
    this.#settleMs = settings.settleMs ?? SETTLE_MS;
    this.#limitAtMs = message.askedAtMs + (settings.deliverLimitMs ?? DELIVER_LIMIT_MS);
    this.#marks = [{ sentAtMs: message.askedAtMs, answeredAtMs: performance.now() }, null];
    this.#heldUntilMs = message.askedAtMs + settings.ackWaitMs;
    this.#stopReconnect = bus.onReconnect((reconnection) => this.#doubt(reconnection));
    this.#scheduleBeat(settings.ackWaitMs / 3);
    this.#watchExpiry();
  }

  get held(): AbortSignal {
    return this.#lost.signal;
  }

  assertHeld(): void {
    this.#check();
    this.#lost.signal.throwIfAborted();
  }

  isHeld(): boolean {
    this.#check();
    return !this.#lost.signal.aborted;
  }

  ack(): Promise<Settled> {
    this.#settled ??= this.#settle('+ACK').finally(() => this.#stop());
    return this.#settled;
  }

  nak(delayMs = 0, withinMs?: number): Promise<Settled> {
    const delay = Math.round(delayMs * 1e6);
    return this.#settleWhileHeld(delay > 0 ? `-NAK {"delay": ${delay}}` : '-NAK', withinMs);
  }

  term(reason: string): Promise<Settled> {
    return this.#settleWhileHeld(`+TERM ${reason.replaceAll(/\s+/g, ' ').slice(0, 1_000)}`);
  }

  [Symbol.dispose](): void {
    this.#stop();
  }

  /** A late nak or term would hit the job under its next holder. */
  #settleWhileHeld(payload: string, withinMs?: number): Promise<Settled> {
    if (this.#settled !== undefined) return this.#settled;
    const held = this.isHeld();
    this.#stop();
    if (!held) {
      this.#settled = Promise.resolve('lost');
      return this.#settled;
    }
    // A server that was restarted may have given the job to the next by the time it is asked again.
    const stopReconnect = this.#bus.onReconnect(({ sameServer }) => {
      if (!sameServer) this.#heldUntilMs = 0;
    });
    this.#settled = this.#settle(payload, withinMs).finally(stopReconnect);
    return this.#settled;
  }

  /** The client's own confirmed ack remembers a time-out as done and sends nothing again; a plain request does. */
  async #settle(payload: string, withinMs = this.#settleMs): Promise<Settled> {
    const heldOnly = payload !== '+ACK';
    const endMs = performance.now() + withinMs;
    for (;;) {
      if (heldOnly && performance.now() >= this.#heldUntilMs) return 'unconfirmed';
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) return 'unconfirmed';
      const answer = await this.#request(payload, Math.min(REQUEST_MS, leftMs));
      if (answer !== 'silent') return answer;
      await sleep(Math.min(250, Math.max(0, leftMs)));
    }
  }

  async #request(payload: string, timeoutMs: number): Promise<'confirmed' | 'gone' | 'silent'> {
    // Unsent bytes would wait in the client and reach the server when the job may be another's.
    if (!this.#bus.connected) return 'silent';
    try {
      await this.#bus.nc.request(this.message.reply, payload, { timeout: Math.max(1, Math.round(timeoutMs)) });
      return 'confirmed';
    } catch (error) {
      return error instanceof RequestError && error.isNoResponders() ? 'gone' : 'silent';
    }
  }

  async #beat(): Promise<void> {
    this.#check();
    if (!this.#beating) return;
    const sentAtMs = performance.now();
    // A beat that takes longer than the next one is due is given up for the next one.
    const answer = await this.#request('+WPI', this.#ackWaitMs / 3);
    this.#check();
    if (!this.#beating) return;
    if (answer === 'confirmed') {
      this.#marks = [{ sentAtMs, answeredAtMs: performance.now() }, this.#marks[0]];
      this.#heldUntilMs = sentAtMs + this.#ackWaitMs;
      this.#scheduleBeat(this.#ackWaitMs / 3 - (performance.now() - sentAtMs));
    } else {
      this.#bus.log.warn({ subject: this.message.subject, answer }, 'beat of a job not confirmed');
      // `gone` may be a leader that moved: asked again until ack_wait is over.
      this.#scheduleBeat(this.#ackWaitMs / 10);
    }
  }

  #scheduleBeat(delayMs: number): void {
    this.#beatTimer = setTimeout(() => void this.#beat(), Math.max(0, delayMs));
  }

  #watchExpiry(): void {
    const untilMs = Math.min(this.#heldUntilMs, this.#limitAtMs);
    this.#expiryTimer = setTimeout(
      () => {
        this.#check();
        if (this.#beating) this.#watchExpiry();
      },
      Math.max(1, Math.min(untilMs - performance.now() + 1, MAX_TIMER_MS)),
    );
  }

  #check(): void {
    if (!this.#beating) return;
    const nowMs = performance.now();
    if (nowMs < this.#heldUntilMs && nowMs < this.#limitAtMs) return;
    this.#lose(
      nowMs >= this.#limitAtMs
        ? `the job was held for ${Math.round((nowMs - this.message.askedAtMs) / 1000)} s, the most a delivery may take`
        : `no beat was confirmed within ack_wait (${this.#ackWaitMs} ms): the job may be played elsewhere by now`,
    );
  }

  /** Another process answers: what the former one had not yet written is forgotten. */
  #doubt({ lostAtMs, sameServer }: Reconnection): void {
    if (sameServer || !this.#beating) return;
    const written = this.#marks.find((mark) => mark !== null && lostAtMs - mark.answeredAtMs >= WRITTEN_MS);
    if (!written) {
      this.#lose(
        'another nats-server answers than a moment ago, when we were given the job, and may have forgotten that',
      );
      return;
    }
    this.#marks = [written, null];
    this.#heldUntilMs = written.sentAtMs + this.#ackWaitMs - WHOLE_SECOND_MS;
    clearTimeout(this.#expiryTimer);
    this.#watchExpiry();
  }

  #lose(why: string): void {
    this.#stop();
    this.#lost.abort(new LeaseLost(why));
  }

  #stop(): void {
    this.#beating = false;
    clearTimeout(this.#beatTimer);
    clearTimeout(this.#expiryTimer);
    this.#stopReconnect();
  }
}

/** Longer timers overflow and fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;
