import { JetStreamApiError } from '@nats-io/jetstream';
import { headers as newHeaders } from '@nats-io/transport-node';
import { HEADERS, ID_PATTERN, type JobAddress, messageId } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { answered, BusAway, lastStored, REQUEST_MS, untilAnswered } from './stored.ts';
import { MAX_JOB_BYTES } from './streams.ts';

export interface JobToPublish {
  address: JobAddress;
  /** The message body, UTF-8 JSON. */
  data: Uint8Array;
  /** For a retry: the sequence of the outcome that the new one replaces. */
  supersedes?: number | undefined;
}

export type Published =
  /** `republished`: its message id was known and its job gone, so it went with `/n` at its end. */
  | { kind: 'queued'; seq: number; republished: number | null }
  /** Waiting or running already, perhaps with another body: the one in the queue stays. */
  | { kind: 'already_queued' }
  /** Its outcome stands; a retry must say that it supersedes it. */
  | { kind: 'already_done'; seq: number }
  | { kind: 'too_large'; bytes: number; limitBytes: number; message: string }
  | { kind: 'refused'; message: string };

export interface PublishSettings {
  /** Unanswered publishes at once. 500 make about 10,000 jobs a second where one at a time makes 1,700. */
  inFlight?: number;
  signal?: AbortSignal | undefined;
  /** How long to go on while the bus is away. */
  patienceMs?: number;
}

const IN_FLIGHT = 500;
const PATIENCE_MS = 60_000;
/** As often as a job may be published again within the server's memory of ids. */
const MAX_REPUBLISHED = 1_000;

const SUBJECT_FULL = 10077;
const TOO_LARGE = 10054;

/**
 * Publishes jobs, many at once, and tells of each in the order given what became of it. Safe to repeat: a job is in
 * the queue once.
 * @throws the signal's reason
 */
export async function* publishJobs<T extends JobToPublish>(
  bus: Bus,
  jobs: Iterable<T> | AsyncIterable<T>,
  settings: PublishSettings = {},
): AsyncGenerator<{ job: T; published: Published }> {
  const { inFlight = IN_FLIGHT, signal } = settings;
  const window: Promise<{ job: T; published: Published }>[] = [];
  for await (const job of jobs) {
    signal?.throwIfAborted();
    window.push(publishJob(bus, job, settings).then((published) => ({ job, published })));
    const oldest = window.length >= inFlight ? window.shift() : undefined;
    if (oldest) yield await oldest;
  }
  for (const publishing of window) {
    signal?.throwIfAborted();
    yield await publishing;
  }
}

/** Publishes one job. Never rejects: what went wrong is what it answers. */
export async function publishJob(bus: Bus, job: JobToPublish, settings: PublishSettings = {}): Promise<Published> {
  const { signal, patienceMs = PATIENCE_MS } = settings;
  const problem = findProblem(job);
  if (problem) return problem;
  let unanswered = false;
  try {
    return await untilAnswered(
      bus,
      'publish',
      async () => {
        try {
          return await publishUntilNew(bus, job, unanswered);
        } catch (error) {
          unanswered ||= error instanceof BusAway;
          throw error;
        }
      },
      { signal, patienceMs },
    );
  } catch (error) {
    return { kind: 'refused', message: explain(bus, error) };
  }
}

/** @param unanswered an earlier publish may have been stored: a duplicate is our own */
async function publishUntilNew(bus: Bus, job: JobToPublish, unanswered: boolean): Promise<Published> {
  const { batch, job: id } = job.address;
  const subject = bus.names.jobSubject(job.address);
  for (let republished = 0; republished <= MAX_REPUBLISHED; republished++) {
    const headers = newHeaders();
    headers.set('Nats-Msg-Id', messageId(batch, id, republished || undefined));
    if (job.supersedes !== undefined) headers.set(HEADERS.supersedes, String(job.supersedes));
    try {
      const expect = { streamName: bus.names.jobsStream };
      const options = { headers, expect, timeout: REQUEST_MS };
      const ack = await answered(bus, () => bus.js.publish(subject, job.data, options));
      if (!ack.duplicate) return { kind: 'queued', seq: ack.seq, republished: republished || null };
      // A known id says nothing of where its job is: it may have been played, or purged.
      if (await lastStored(bus, bus.names.jobsStream, subject)) {
        return unanswered
          ? { kind: 'queued', seq: ack.seq, republished: republished || null }
          : { kind: 'already_queued' };
      }
      const outcome = await lastStored(bus, bus.names.resultsStream, bus.names.resultSubject(batch, id));
      if (outcome && outcome.seq !== job.supersedes) return { kind: 'already_done', seq: outcome.seq };
    } catch (error) {
      if (!(error instanceof JetStreamApiError)) throw error;
      if (error.code === SUBJECT_FULL) return { kind: 'already_queued' };
      if (error.code === TOO_LARGE) return tooLarge(sizeOf(job));
      throw error;
    }
  }
  return {
    kind: 'refused',
    message: `published ${MAX_REPUBLISHED} times within minutes; wait for the server to forget`,
  };
}

function findProblem(job: JobToPublish): Published | null {
  for (const [name, token] of Object.entries(job.address)) {
    // A dot would make another subject, which no stream takes: the publish would only time out.
    if (!ID_PATTERN.test(token)) {
      return { kind: 'refused', message: `${name} ${JSON.stringify(token)} is no legal id: ids match ${ID_PATTERN}` };
    }
  }
  const bytes = sizeOf(job);
  return bytes > MAX_JOB_BYTES ? tooLarge(bytes) : null;
}

function tooLarge(bytes: number): Published {
  const shown = bytes.toLocaleString('en-US');
  const limit = MAX_JOB_BYTES.toLocaleString('en-US');
  return {
    kind: 'too_large',
    bytes,
    limitBytes: MAX_JOB_BYTES,
    message: `the job is ${shown} bytes with its headers, the limit is ${limit} (512 KiB); put files under inputs/<batch>/ in S3 and name them`,
  };
}

/** Header lines as they go over the wire, counted against the limit like the body; the version line makes the rest. */
function sizeOf(job: JobToPublish): number {
  const id = messageId(job.address.batch, job.address.job);
  const supersedes = job.supersedes === undefined ? '' : `${HEADERS.supersedes}: ${job.supersedes}\r\n`;
  return job.data.length + `NATS/1.0\r\nNats-Msg-Id: ${id}\r\n${EXPECTED_STREAM}${supersedes}\r\n`.length;
}

const EXPECTED_STREAM = 'Nats-Expected-Stream: GYMBUS_JOBS\r\n';

function explain(bus: Bus, error: unknown): string {
  if (error instanceof BusAway) {
    return `no answer from the bus (${error.message}): it may or may not be queued, and publishing it again does no harm. If it is up, its streams may be missing: gymbus streams ensure`;
  }
  if (error instanceof JetStreamApiError) return `nats-server refuses it: ${error.message} (${error.code})`;
  const reason = error instanceof Error ? error.message : String(error);
  return bus.nc.isClosed() ? 'the connection was closed before it was published' : reason;
}
