import { ID_PATTERN } from './id.ts';

/** A job's place on the bus: the three tokens of its subject after the prefix. */
export interface JobAddress {
  image: string;
  batch: string;
  job: string;
}

/** Every name on the bus, all one prefix away from `gymbus`. */
export interface BusNames {
  prefix: string;
  jobsStream: string;
  resultsStream: string;
  eventsStream: string;
  deadStream: string;
  attemptsBucket: string;
  runnersBucket: string;
  batchesBucket: string;
  jobSubject(address: JobAddress): string;
  /** Any tokens may be `*` in the filters. */
  resultSubject(batch: string, job: string): string;
  eventSubject(batch: string, job: string, kind: string): string;
  deadSubject(address: JobAddress): string;
  /** Where the jobs stream announces each stored job, headers only. */
  queuedSubject(address: JobAddress): string;
  /** Reads the tokens of a job or queued subject; null when it is neither. Tokens may still be no legal ids. */
  parseJobSubject(subject: string): JobAddress | null;
}

/** @throws when the prefix is no legal subject token */
export function busNames(prefix = 'gymbus'): BusNames {
  if (!ID_PATTERN.test(prefix)) throw new Error(`bus prefix must match ${ID_PATTERN}, got ${JSON.stringify(prefix)}`);
  const upper = prefix.toUpperCase().replaceAll('-', '_');
  return {
    prefix,
    jobsStream: `${upper}_JOBS`,
    resultsStream: `${upper}_RESULTS`,
    eventsStream: `${upper}_EVENTS`,
    deadStream: `${upper}_DEAD`,
    attemptsBucket: `${upper}_ATTEMPTS`,
    runnersBucket: `${upper}_RUNNERS`,
    batchesBucket: `${upper}_BATCHES`,
    jobSubject: ({ image, batch, job }) => `${prefix}.jobs.${image}.${batch}.${job}`,
    resultSubject: (batch, job) => `${prefix}.results.${batch}.${job}`,
    eventSubject: (batch, job, kind) => `${prefix}.events.${batch}.${job}.${kind}`,
    deadSubject: ({ image, batch, job }) => `${prefix}.dead.${image}.${batch}.${job}`,
    queuedSubject: ({ image, batch, job }) => `${prefix}.queued.${image}.${batch}.${job}`,
    parseJobSubject: (subject) => {
      const [head, kind, image, batch, job, ...rest] = subject.split('.');
      if (head !== prefix || (kind !== 'jobs' && kind !== 'queued') || rest.length > 0) return null;
      return image && batch && job ? { image, batch, job } : null;
    },
  };
}

/** Key of a job in GYMBUS_ATTEMPTS. */
export function attemptsKey(batch: string, job: string): string {
  return `${batch}.${job}`;
}

/** Durable consumer of one batch on one image: `~` is legal in a consumer's name and in no id, so the pair is unambiguous. */
export function consumerName(image: string, batch: string): string {
  return `${image}~${batch}`;
}

/** The `Nats-Msg-Id` of a job; `n` for the n-th republication of the same job. */
export function messageId(batch: string, job: string, n?: number): string {
  return n === undefined ? `${batch}/${job}` : `${batch}/${job}/${n}`;
}

/** Header names of gymbus's own. */
export const HEADERS = {
  supersedes: 'Gymbus-Supersedes',
  reason: 'Gymbus-Reason',
  class: 'Gymbus-Class',
  attempts: 'Gymbus-Attempts',
} as const;
