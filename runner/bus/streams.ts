import type { StreamConfig } from '@nats-io/jetstream';
import { nanos } from '@nats-io/transport-node';
import type { BusNames } from '../../schemas/index.ts';

/** A stream as gymbus needs it: `needed` is checked against what is there, `initial` is only how we make it. */
export interface StreamDefinition {
  name: string;
  needed: Partial<StreamConfig>;
  /** An operator may choose otherwise: replicas, placement, limits of what is only watched. */
  initial: Partial<StreamConfig>;
}

/** The largest job message, headers included; a dead letter with its own headers still fits into a message of 1 MiB. */
export const MAX_JOB_BYTES = 512 * 1024;
/** How far back `Nats-Msg-Id` is remembered. */
const DUPLICATE_WINDOW_MS = 120_000;
/** Time between two heartbeats of a runner; three missed ones and it is gone. */
export const HEARTBEAT_MS = 5_000;
/** How long a watcher that was away still learns that a runner is gone. */
const EXPIRY_MARKER_MS = 60_000;
const EVENTS_KEPT_MS = 7 * 24 * 3_600_000;
const EVENTS_KEPT_BYTES = 2 ** 30;
/** One durable per image and batch; the server's own default is 1,000. */
const MAX_CONSUMERS = 100_000;

const unlimited = { max_age: 0, max_bytes: -1, max_msgs: -1 } as const;
const intact = { sealed: false, no_ack: false } as const;

/** Every stream and bucket of gymbus, as data. @param heartbeatMs the runners' beat, from which the bucket's TTL follows */
export function streamDefinitions(names: BusNames, heartbeatMs = HEARTBEAT_MS): StreamDefinition[] {
  const { prefix } = names;
  return [
    {
      name: names.jobsStream,
      needed: {
        subjects: [`${prefix}.jobs.*.*.*`],
        retention: 'workqueue',
        storage: 'file',
        discard: 'new',
        max_msgs_per_subject: 1,
        discard_new_per_subject: true,
        max_msg_size: MAX_JOB_BYTES,
        duplicate_window: nanos(DUPLICATE_WINDOW_MS),
        allow_direct: true,
        republish: { src: `${prefix}.jobs.>`, dest: `${prefix}.queued.>`, headers_only: true },
        ...unlimited,
        ...intact,
      },
      initial: {
        description: 'Jobs waiting or running: image, batch, job',
        max_consumers: MAX_CONSUMERS,
        num_replicas: 1,
      },
    },
    {
      name: names.resultsStream,
      // Not discard-new: a retry replaces the outcome it supersedes, by compare-and-swap.
      needed: {
        subjects: [`${prefix}.results.*.*`],
        retention: 'limits',
        storage: 'file',
        discard: 'old',
        max_msgs_per_subject: 1,
        ...unlimited,
        ...intact,
      },
      initial: {
        description: 'The outcome of each job, committed once: batch, job',
        allow_direct: true,
        num_replicas: 1,
      },
    },
    {
      name: names.eventsStream,
      needed: { subjects: [`${prefix}.events.*.*.*`], retention: 'limits', discard: 'old', sealed: false },
      initial: {
        description: 'What jobs do, best effort: batch, job, kind',
        storage: 'file',
        persist_mode: 'async',
        max_age: nanos(EVENTS_KEPT_MS),
        max_bytes: EVENTS_KEPT_BYTES,
        allow_direct: true,
        num_replicas: 1,
      },
    },
    {
      name: names.deadStream,
      needed: { subjects: [`${prefix}.dead.*.*.*`], retention: 'limits', storage: 'file', ...unlimited, ...intact },
      initial: {
        description: 'Jobs that cannot run, as they came: image, batch, job',
        allow_direct: true,
        num_replicas: 1,
      },
    },
    bucket(names.attemptsBucket, 'Attempts of each job: batch.job'),
    bucket(names.runnersBucket, 'Live runners, by id; a runner three beats late is gone', {
      max_age: nanos(3 * heartbeatMs),
      allow_msg_ttl: true,
      subject_delete_marker_ttl: nanos(EXPIRY_MARKER_MS),
    }),
    bucket(names.batchesBucket, 'Batches: size, labels, priority, paused, cancelled'),
  ];
}

/** A key-value bucket is a stream of a certain shape; made as one, it is checked as one. */
function bucket(name: string, description: string, needed: Partial<StreamConfig> = {}): StreamDefinition {
  return {
    name: `KV_${name}`,
    needed: {
      subjects: [`$KV.${name}.>`],
      retention: 'limits',
      storage: 'file',
      discard: 'new',
      allow_rollup_hdrs: true,
      ...unlimited,
      ...intact,
      ...needed,
    },
    initial: { description, max_msgs_per_subject: 1, allow_direct: true, deny_delete: true, num_replicas: 1 },
  };
}

/** Subject under which a bucket's key is stored. */
export function kvSubject(bucket: string, key: string): string {
  return `$KV.${bucket}.${key}`;
}
