import { randomInt } from 'node:crypto';
import { AttemptHistory, type AttemptRecord, attemptsKey, cutMessage, type FailureClass } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { type Edited, editStored, type Patience, type Stored } from './stored.ts';
import { kvSubject } from './streams.ts';

export type Begun =
  | { kind: 'begun'; attempt: AttemptRecord; history: AttemptHistory }
  /** As many attempts as the job may have are spent; nothing was written. */
  | { kind: 'used_up'; history: AttemptHistory };

export interface AttemptRequest {
  batch: string;
  job: string;
  /** Of the job message as received. */
  sha256: string;
  fence: number;
  runner: string;
  /** Of the attempt's id, from `attemptSuffix`: by it an attempt whose beginning was not answered is found again. */
  suffix: string;
  /** Whether no more may be started, by what there was so far. */
  usedUp(history: AttemptHistory): boolean;
}

/** How an attempt ended: `class` null when it was played to its outcome. */
export interface AttemptEnd {
  class: FailureClass | null;
  message?: string | null;
  replicaLost?: boolean;
}

/**
 * Writes a new attempt down, by compare-and-swap, before the guest is touched; refuses when they are used up. The history
 * of another body, or of a run that was superseded, counts nothing: it starts anew.
 * @throws the signal's reason when the bus stays away until then
 */
export function beginAttempt(bus: Bus, request: AttemptRequest, patience?: Patience): Promise<Begun> {
  const { batch, job, sha256, fence, suffix } = request;
  const startedAt = new Date().toISOString();
  return editHistory<Begun>(
    bus,
    batch,
    job,
    (stored) => {
      const same = stored !== null && stored.fence === fence && stored.job_sha256 === sha256;
      const history: AttemptHistory = same
        ? stored
        : { schema: 'gymbus.attempts.v1', job_sha256: sha256, fence, attempts: [] };
      // An earlier write of this very call whose answer was lost.
      const written = findAttempt(history, suffix);
      if (written) return { answer: { kind: 'begun', attempt: written, history } };
      if (request.usedUp(history)) return { answer: { kind: 'used_up', history } };
      const attempt: AttemptRecord = {
        attempt: `${history.attempts.length + 1}-${suffix}`,
        runner: request.runner,
        started_at: startedAt,
        ended_at: null,
        class: null,
        message: null,
        replica_lost: false,
      };
      const next = { ...history, attempts: [...history.attempts, attempt] };
      return { write: next, answer: { kind: 'begun', attempt, history: next } };
    },
    patience,
  );
}

/**
 * Writes down how an attempt ended. The first end stands.
 * @returns the history as it is now, or null when it is no longer that attempt's
 */
export function endAttempt(
  bus: Bus,
  batch: string,
  job: string,
  suffix: string,
  end: AttemptEnd,
  patience?: Patience,
): Promise<AttemptHistory | null> {
  const endedAt = new Date().toISOString();
  return editHistory<AttemptHistory | null>(
    bus,
    batch,
    job,
    (stored) => {
      const found = stored && findAttempt(stored, suffix);
      if (!stored || !found) return { answer: null };
      if (found.ended_at !== null) return { answer: stored };
      const ended: AttemptRecord = {
        ...found,
        ended_at: endedAt,
        class: end.class,
        // Fifty deliveries with such messages still fit into one value.
        message: end.message === undefined || end.message === null ? null : cutMessage(end.message),
        replica_lost: end.replicaLost ?? false,
      };
      const next = { ...stored, attempts: stored.attempts.map((attempt) => (attempt === found ? ended : attempt)) };
      return { write: next, answer: next };
    },
    patience,
  );
}

function findAttempt({ attempts }: AttemptHistory, suffix: string): AttemptRecord | undefined {
  return attempts.find((attempt) => attempt.attempt.endsWith(`-${suffix}`));
}

/** The attempts of a job as the bus remembers them. */
export function readAttempts(
  bus: Bus,
  batch: string,
  job: string,
  patience?: Patience,
): Promise<AttemptHistory | null> {
  return editHistory<AttemptHistory | null>(bus, batch, job, (stored) => ({ answer: stored }), patience);
}

function editHistory<T>(
  bus: Bus,
  batch: string,
  job: string,
  edit: (stored: AttemptHistory | null) => Edited<T> & { write?: AttemptHistory },
  patience?: Patience,
): Promise<T> {
  const bucket = bus.names.attemptsBucket;
  const place = { stream: `KV_${bucket}`, subject: kvSubject(bucket, attemptsKey(batch, job)) };
  const read = (stored: Stored | null) => (stored ? readHistory(bus, place.subject, stored.data) : null);
  return editStored(bus, 'attempts', place, (stored) => edit(read(stored)), patience);
}

/** Null for a deleted key (no body) and for what is no history: both start anew. */
function readHistory(bus: Bus, subject: string, data: Uint8Array): AttemptHistory | null {
  if (data.length === 0) return null;
  try {
    return AttemptHistory.parse(JSON.parse(Buffer.from(data).toString('utf8')));
  } catch (error) {
    bus.log.warn({ err: error, subject }, 'attempts are unreadable; counting anew');
    return null;
  }
}

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789';

/** Ten characters, 51 bits: what keeps two holders of the same ordinal apart. */
export function attemptSuffix(): string {
  return Array.from({ length: 10 }, () => ALPHABET[randomInt(ALPHABET.length)]).join('');
}
