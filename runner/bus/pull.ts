import { performance } from 'node:perf_hooks';
import { createInbox, type Msg, type MsgHdrs, type Subscription } from '@nats-io/transport-node';
import type { JobAddress } from '../../schemas/index.ts';
import { ACK_WAIT_MS } from './consumers.ts';
import { readHeaders } from './headers.ts';
import type { Bus } from './index.ts';
import { REQUEST_MS } from './stored.ts';

/** One delivery of a job message. */
export interface JobMessage {
  subject: string;
  /** The tokens of its subject, which may be no legal ids. */
  address: JobAddress;
  data: Uint8Array;
  headers: MsgHdrs | undefined;
  /** Why its headers cannot be read: then there are none. */
  headersProblem: string | null;
  /** Where acknowledgements go. */
  reply: string;
  consumer: string;
  /** How often the server has delivered it, this time included. Starts at 1 again with a consumer made anew. */
  deliveries: number;
  /** Sequence in the jobs stream. */
  seq: number;
  /** When it was published, by the clock of the server: its time in the stream. */
  publishedAt: Date;
  /** Jobs of its batch that were never delivered yet. */
  pending: number;
  /** Monotonic milliseconds when we asked for it: it cannot have been delivered earlier. */
  askedAtMs: number;
}

export interface Pulled {
  messages: JobMessage[];
  /** `full`: as many as asked for. `empty`: no more now. `no_consumer`: make it and ask again. `silent`: no answer. */
  end: 'full' | 'empty' | 'no_consumer' | 'silent';
}

/** Part of ack_wait in which an answer that comes too late is surely still ours, and is given back at once. */
const LATE_PART = 2 / 3;

/**
 * Asks a batch's consumer for up to `batch` jobs without waiting for one to come: an empty one answers in milliseconds.
 * What arrives after the deadline or an abort is given back, so that nobody waits for its ack_wait.
 */
export function pull(
  bus: Bus,
  consumer: string,
  batch: number,
  options: { signal?: AbortSignal | undefined; timeoutMs?: number; ackWaitMs?: number } = {},
): Promise<Pulled> {
  const { signal, timeoutMs = REQUEST_MS, ackWaitMs = ACK_WAIT_MS } = options;
  if (!bus.connected || signal?.aborted) return Promise.resolve({ messages: [], end: 'silent' });
  const askedAtMs = performance.now();
  return new Promise((resolve) => {
    const messages: JobMessage[] = [];
    let open = true;
    const finish = (end: Pulled['end']) => {
      if (!open) return;
      open = false;
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      if (end === 'silent') closeLater(subscription, ackWaitMs * LATE_PART - (performance.now() - askedAtMs));
      else subscription.unsubscribe();
      resolve({ messages, end });
    };
    const onAbort = () => finish('silent');
    const timer = setTimeout(onAbort, timeoutMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    const subscription = bus.nc.subscribe(createInbox(), {
      callback: (error, message) => {
        if (error) return finish('silent');
        const isStatus = message.subject === subscription.getSubject();
        if (!open) return isStatus ? subscription.unsubscribe() : bus.nc.publish(message.reply ?? '', '-NAK');
        if (isStatus) return finish(endOf(statusOf(message)));
        const job = readDelivery(bus, message, askedAtMs);
        if (job) messages.push(job);
        if (messages.length === batch) finish('full');
      },
    });
    bus.nc.publish(
      `$JS.API.CONSUMER.MSG.NEXT.${bus.names.jobsStream}.${consumer}`,
      JSON.stringify({ batch, no_wait: true }),
      { reply: subscription.getSubject() },
    );
  });
}

function closeLater(subscription: Subscription, delayMs: number): void {
  setTimeout(() => subscription.unsubscribe(), Math.max(0, delayMs)).unref();
}

/** A status comes on the subject that was asked from, a job on its own: what its headers say is the publisher's. */
function statusOf(message: Msg): number {
  return readHeaders(message).headers?.code ?? 0;
}

function endOf(status: number): Pulled['end'] {
  // 503: nobody listens, the consumer does not exist. 409: it was deleted, or its leader moved.
  if (status === 503) return 'no_consumer';
  return status === 404 || status === 408 ? 'empty' : 'no_consumer';
}

function readDelivery(bus: Bus, message: Msg, askedAtMs: number): JobMessage | null {
  const reply = message.reply ?? '';
  const counts = parseReply(reply);
  const address = bus.names.parseJobSubject(message.subject);
  if (counts === null || address === null) {
    bus.log.error({ subject: message.subject, reply }, 'delivery with a subject or reply that is none of ours');
    return null;
  }
  const { subject, data } = message;
  const { headers, problem } = readHeaders(message);
  return { subject, address, data, headers, headersProblem: problem, reply, askedAtMs, ...counts };
}

/**
 * Reads the tokens of an acknowledgement subject:
 * `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>`,
 * or with `<domain>.<account>` before the stream and perhaps one token more at the end.
 */
export function parseReply(
  reply: string,
): Pick<JobMessage, 'consumer' | 'deliveries' | 'seq' | 'publishedAt' | 'pending'> | null {
  const tokens = reply.split('.');
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK') return null;
  if (tokens.length !== 9 && tokens.length < 11) return null;
  const [, consumer, deliveries, seq, , time, pending] = tokens.slice(tokens.length === 9 ? 2 : 4);
  const numbers = [deliveries, seq, time, pending].map(Number);
  if (consumer === undefined || numbers.some(Number.isNaN)) return null;
  const [deliveryCount = 0, streamSeq = 0, timeNs = 0, pendingCount = 0] = numbers;
  return {
    consumer,
    deliveries: deliveryCount,
    seq: streamSeq,
    publishedAt: new Date(timeNs / 1e6),
    pending: pendingCount,
  };
}
