import { JetStreamApiCodes, JetStreamApiError, JetStreamError } from '@nats-io/jetstream';
import { type MsgHdrs, RequestError, TimeoutError } from '@nats-io/transport-node';
import pRetry from 'p-retry';
import { explainDenied } from './errors.ts';
import { readStoredHeaders } from './headers.ts';
import type { Bus } from './index.ts';

/** The last message of a subject. */
export interface Stored {
  seq: number;
  data: Uint8Array;
  /** Read when they are asked for; none where they cannot be. */
  readonly headers: MsgHdrs;
  time: Date;
}

export interface Patience {
  /** Ends the wait for a bus that is away; its reason is thrown. */
  signal?: AbortSignal | undefined;
  /** How long to go on while the bus is away, then `BusAway` is thrown; without it as long as `signal` allows. */
  patienceMs?: number | undefined;
}

/** One request to a healthy server takes milliseconds; a frozen one is asked again after this. */
export const REQUEST_MS = 5_000;
const FIRST_PAUSE_MS = 200;
/** A server that is back is noticed within this time. */
const LONGEST_PAUSE_MS = 2_000;

/** Nobody answered: it may or may not have been done. */
export class BusAway extends Error {
  override readonly name = 'BusAway';
}

/**
 * Reads the last message of a subject from the stream's leader, which alone knows of every commit.
 * @throws BusAway
 */
export async function lastStored(bus: Bus, stream: string, subject: string): Promise<Stored | null> {
  const message = await answered(bus, () => bus.jsm.streams.getMessage(stream, { last_by_subj: subject }));
  if (message === null) return null;
  return {
    seq: message.seq,
    data: message.data,
    get headers() {
      return readStoredHeaders(message);
    },
    time: message.time,
  };
}

/**
 * Publishes when `expected` is still the sequence of the subject's last message, 0 for none.
 * @returns the new sequence, or null when another message was first
 * @throws BusAway when it may have been stored: read the subject before anything else
 */
export async function swapStored(
  bus: Bus,
  subject: string,
  data: Uint8Array,
  expected: number,
): Promise<number | null> {
  try {
    const options = { timeout: REQUEST_MS, expect: { lastSubjectSequence: expected } };
    return (await answered(bus, () => bus.js.publish(subject, data, options))).seq;
  } catch (error) {
    if (error instanceof JetStreamApiError && REFUSED.has(error.code)) return null;
    throw error;
  }
}

/** What becomes of a stored message: `write` in its place, or nothing. */
export interface Edited<T> {
  write?: object;
  answer: T;
}

/** Reads, edits and swaps until nobody came between. @param edit must be repeatable @throws BusAway; the signal's reason */
export function editStored<T>(
  bus: Bus,
  what: string,
  { stream, subject }: { stream: string; subject: string },
  edit: (stored: Stored | null) => Edited<T>,
  patience?: Patience,
): Promise<T> {
  return untilAnswered(
    bus,
    what,
    async () => {
      for (;;) {
        patience?.signal?.throwIfAborted();
        const stored = await lastStored(bus, stream, subject);
        const { write, answer } = edit(stored);
        if (write === undefined) return answer;
        const seq = await swapStored(bus, subject, Buffer.from(JSON.stringify(write)), stored?.seq ?? 0);
        if (seq !== null) return answer;
      }
    },
    patience,
  );
}

const REFUSED = new Set<number>([
  JetStreamApiCodes.StreamWrongLastSequence,
  JetStreamApiCodes.StreamWrongLastSequenceUnknown,
]);

/**
 * Runs one exchange with the server, with its silence told apart from its refusals.
 * @throws BusAway; BusRefused when this user has no right to it, for that no waiting mends
 */
export async function answered<T>(bus: Bus, exchange: () => Promise<T>): Promise<T> {
  // Without a connection a request would wait in the client and be sent when nobody waits for it any more.
  if (!bus.connected) throw new BusAway('not connected to NATS');
  const { connection } = bus;
  let onLost = () => {};
  const lost = new Promise<never>((_, reject) => {
    onLost = () => reject(new BusAway('the connection to NATS was lost before the answer'));
    connection.addEventListener('abort', onLost);
  });
  try {
    return await Promise.race([exchange(), lost]);
  } catch (error) {
    const denied = explainDenied(error);
    if (denied) throw denied;
    if (error instanceof TimeoutError) throw new BusAway('NATS did not answer in time', { cause: error });
    if (error instanceof RequestError || isNotEnabled(error)) {
      throw new BusAway('NATS has nobody to answer: the stream is missing or without a leader', { cause: error });
    }
    throw error;
  } finally {
    connection.removeEventListener('abort', onLost);
  }
}

/** What the client makes of "no responders" on a JetStream request; a refusal by the server is a `JetStreamApiError`. */
function isNotEnabled(error: unknown): boolean {
  return error instanceof Error && error.name === 'JetStreamNotEnabled' && !(error instanceof JetStreamError);
}

function isStreamMissing(error: unknown): boolean {
  return error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound;
}

/** How often it is told that the bus does not answer, however many ask. */
const TELL_MS = 5_000;
const toldAtMs = new WeakMap<Bus, number>();

/**
 * Repeats an idempotent exchange for as long as the bus is away. A missing stream is as good as no bus to who waits
 * for as long as a signal allows, and so until it is made again; to all others it is an answer.
 * @throws what is no silence, or the signal's reason
 */
export function untilAnswered<T>(
  bus: Bus,
  what: string,
  exchange: () => Promise<T>,
  { signal, patienceMs }: Patience = {},
): Promise<T> {
  const waitsForAll = signal !== undefined && patienceMs === undefined;
  const mayPass = (error: unknown): boolean => error instanceof BusAway || (waitsForAll && isStreamMissing(error));
  return pRetry(exchange, {
    retries: Number.POSITIVE_INFINITY,
    minTimeout: FIRST_PAUSE_MS,
    maxTimeout: LONGEST_PAUSE_MS,
    shouldRetry: ({ error }) => mayPass(error) && !bus.nc.isClosed(),
    maxRetryTime: patienceMs ?? Number.POSITIVE_INFINITY,
    onFailedAttempt: ({ error, attemptNumber }) => {
      if (!mayPass(error) || performance.now() - (toldAtMs.get(bus) ?? -TELL_MS) < TELL_MS) return;
      toldAtMs.set(bus, performance.now());
      bus.log.warn({ what, attempt: attemptNumber, cause: error.message }, 'no answer from the bus; asking again');
    },
    ...(signal === undefined ? {} : { signal }),
  });
}
