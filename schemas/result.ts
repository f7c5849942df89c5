import { z } from 'zod';
import { AttemptId, Id, Sha256, Timestamp, TimingsMs } from './id.ts';
import { HostUse } from './network.ts';

/** Which part failed; what follows from it is one table, `runner/job/failure.ts`. */
export const FailureClass = z.enum([
  'invalid_job',
  'job_id_reused',
  'setup',
  'policy',
  'evaluator',
  'guest',
  'host',
  'storage',
  'poison',
  'cancelled',
]);
export type FailureClass = z.infer<typeof FailureClass>;

export const Failure = z.looseObject({ class: FailureClass, message: z.string() });
export type Failure = z.infer<typeof Failure>;

const MAX_MESSAGE_CHARS = 2_000;

/** A failure's message at the length it may have: with all else of a result, a record or a dead letter it fits into a message of the bus. */
export function cutMessage(message: string): string {
  return message.length <= MAX_MESSAGE_CHARS ? message : `${message.slice(0, MAX_MESSAGE_CHARS - 3)}...`;
}

export const Status = z.enum(['completed', 'failed', 'cancelled', 'dead']);
export type Status = z.infer<typeof Status>;

/** Software emulation, hardware virtualisation, or no guest at all (load tests). */
export const Accelerator = z.enum(['kvm', 'tcg', 'simulated']);
export type Accelerator = z.infer<typeof Accelerator>;

/** How a job ended: committed once on its results subject. `score` is null unless an evaluator's answer stands behind it. */
export const Result = z.looseObject({
  schema: z.literal('gymbus.result.v1'),
  batch_id: Id,
  job_id: Id,
  job_sha256: Sha256.describe('Of the job message as received'),
  attempt: AttemptId.nullable().describe('Null when no attempt was made'),
  attempts: z.number().int().nonnegative(),
  status: Status,
  valid: z.boolean().describe('False when the infrastructure, not the agent, decided: mask it in training'),
  score: z.number().min(0).max(1).nullable(),
  reward: z.number().nullable(),
  terminated: z.boolean().describe('The policy or the task ended the episode'),
  truncated: z.boolean().describe('A limit ended the episode; it was still evaluated'),
  stop_reason: z.enum(['done', 'fail', 'max_steps', 'total_s', 'policy_exhausted']).nullable(),
  steps: z.number().int().nonnegative(),
  failure: Failure.nullable(),
  trajectory: z.string().nullable().describe('s3:// URL of the attempt, ending in a slash'),
  runner: z.string(),
  image_digest: z.string().nullable(),
  accelerator: Accelerator.nullable(),
  answer: z.string().nullable().describe("The policy's answer or reason, when it gave one"),
  network: z
    .array(HostUse)
    .optional()
    .describe('What the guest reached and was refused, by host and port; absent where the job asked for no hosts'),
  metadata: z.record(z.string(), z.json()).describe('As the job had it'),
  started_at: Timestamp,
  finished_at: Timestamp,
  timings_ms: TimingsMs,
});
export type Result = z.infer<typeof Result>;
