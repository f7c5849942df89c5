import { cutMessage, ID_PATTERN, type JobAddress, parseJob, type TrajectoryJob } from '../../schemas/index.ts';
import type { Outcome } from '../bus/outcomes.ts';

/** Deliveries are not attempts; this many only mean that something runs away. */
export const MAX_DELIVERIES = 50;

/** What is known of a delivered message before anything is done with it. */
export interface Delivered {
  /** The three tokens of its subject. */
  address: JobAddress;
  body: Uint8Array;
  sha256: string;
  /** Value of `Gymbus-Supersedes`, or null where the message has none. */
  supersedes: string | null;
  /** Why its headers cannot be read; then nothing is known of what it supersedes. */
  headersProblem: string | null;
  deliveries: number;
  /** The last message on the job's results subject. */
  outcome: Outcome | null;
  batchCancelled: boolean;
}

/** What becomes of a delivered message: point 2 of the law of delivery. */
export type Admission =
  | { kind: 'play'; job: TrajectoryJob; fence: number }
  /** An outcome stands: redo what follows a commit, acknowledge, stop. */
  | { kind: 'settled'; outcome: Outcome }
  /** Commit `dead`. */
  | { kind: 'dead'; fence: number; class: 'invalid_job' | 'poison'; message: string }
  /** Commit `cancelled`. */
  | { kind: 'cancelled'; fence: number; job: TrajectoryJob }
  /** A dead letter and nothing else: no outcome can be told from another's, or no such identity exists. */
  | { kind: 'refused'; class: 'job_id_reused' | 'invalid_job'; message: string }
  /** Meant for a later gymbus: given back. */
  | { kind: 'newer'; version: string };

/** @param check lists what is wrong with the functions a job names; empty when all is well */
export function admit(message: Delivered, check: (job: TrajectoryJob) => readonly string[]): Admission {
  const { address, outcome } = message;
  const illegal = Object.entries(address).filter(([, token]) => !ID_PATTERN.test(token));
  if (illegal.length > 0) {
    const named = illegal.map(([name, token]) => `${name} ${JSON.stringify(token)}`).join(', ');
    return { kind: 'refused', class: 'invalid_job', message: `subject has no legal ${named}: ids match ${ID_PATTERN}` };
  }

  const { headersProblem } = message;
  const fence = headersProblem === null ? readFence(message.supersedes) : null;
  if (outcome !== null && outcome.seq !== fence) {
    if (outcome.result.job_sha256 === message.sha256) return { kind: 'settled', outcome };
    return {
      kind: 'refused',
      class: 'job_id_reused',
      message: `job ${address.batch}/${address.job} already has an outcome (${outcome.result.status}, attempt ${outcome.result.attempt ?? 'none'}) for another body; give the new job an id of its own`,
    };
  }
  if (headersProblem !== null) {
    return dead(0, `the headers of the message cannot be read: ${headersProblem}; publish it with sound ones`);
  }
  if (fence === null) {
    return dead(
      0,
      `header Gymbus-Supersedes must be the sequence number of an outcome, got ${JSON.stringify(message.supersedes)}`,
    );
  }
  if (fence !== (outcome?.seq ?? 0)) {
    return dead(0, `header Gymbus-Supersedes names outcome ${fence}, but ${address.batch}/${address.job} has none`);
  }

  const parsed = parseJob(message.body);
  if (parsed.kind === 'newer') return parsed;
  if (parsed.kind === 'invalid') return dead(fence, parsed.reason);
  const { job } = parsed;
  const differing = differences(job, address);
  if (differing.length > 0) return dead(fence, `body and subject disagree: ${differing.join(', ')}`);
  if (message.batchCancelled) return { kind: 'cancelled', fence, job };
  const problems = check(job);
  if (problems.length > 0) return dead(fence, problems.join('; '));
  if (message.deliveries > MAX_DELIVERIES) {
    return {
      kind: 'dead',
      fence,
      class: 'poison',
      message: `delivered ${message.deliveries} times without an outcome; the bound is ${MAX_DELIVERIES}`,
    };
  }
  return { kind: 'play', job, fence };
}

function dead(fence: number, message: string): Admission {
  return { kind: 'dead', fence, class: 'invalid_job', message: cutMessage(message) };
}

/** 0 without a header: the first outcome of the job. Null when the header is no sequence number. */
function readFence(header: string | null): number | null {
  if (header === null) return 0;
  return /^[1-9][0-9]{0,15}$/.test(header) ? Number(header) : null;
}

function differences(job: TrajectoryJob, address: JobAddress): string[] {
  const pairs: [string, string, string][] = [
    ['image', job.image, address.image],
    ['batch_id', job.batch_id, address.batch],
    ['job_id', job.job_id, address.job],
  ];
  return pairs
    .filter(([, body, subject]) => body !== subject)
    .map(
      ([field, body, subject]) =>
        `${field} is ${JSON.stringify(body)} in the body and ${JSON.stringify(subject)} in the subject`,
    );
}
