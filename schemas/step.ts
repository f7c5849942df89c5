import { z } from 'zod';
import { Action } from './action.ts';
import { AttemptId, Id, Sha256, Timestamp, TimingsMs } from './id.ts';

/** An object in the bucket and what its bytes must be; `key` is whole, readers never derive one. */
export const StoredObject = z.looseObject({
  key: z.string(),
  bytes: z.number().int().nonnegative(),
  sha256: Sha256,
});
export type StoredObject = z.infer<typeof StoredObject>;

/** What the policy sees. A screenshot is a PNG of `width` x `height` pixels, the mouse pointer included. */
export const Observation = z.looseObject({
  taken_at: Timestamp,
  screenshot: StoredObject.extend({ width: z.number().int(), height: z.number().int() }).nullable(),
  a11y_tree: StoredObject.nullable(),
});
export type Observation = z.infer<typeof Observation>;

/**
 * One line of `trajectory.jsonl`. Line N is the policy's answer to observation N-1 and the observation after it;
 * line 0 has no actions and is the reset observation.
 */
export const Step = z.looseObject({
  schema: z.literal('gymbus.step.v1'),
  batch_id: Id,
  job_id: Id,
  attempt: AttemptId,
  step: z.number().int().nonnegative(),
  actions: z.array(Action),
  thoughts: z.string().nullable(),
  policy: z.looseObject({ name: z.string(), version: z.string() }),
  /** Indexes of actions whose acknowledgement was lost: each may or may not have landed, and none was repeated. */
  maybe_delivered: z.array(z.number().int()),
  /** Actions that were not sent, with the reason, e.g. a point outside the screen. */
  rejected: z.array(z.looseObject({ index: z.number().int(), message: z.string() })),
  observation: Observation,
  started_at: Timestamp,
  timings_ms: TimingsMs,
  terminated: z.boolean(),
  truncated: z.boolean(),
});
export type Step = z.infer<typeof Step>;
