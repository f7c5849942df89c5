import { z } from 'zod';
import { AttemptId, Id, Timestamp } from './id.ts';

export const EventKind = z.enum([
  'started',
  'setup',
  'step',
  'evaluating',
  'uploaded',
  'committed',
  'retrying',
  'cancelled',
  'dead',
]);
export type EventKind = z.infer<typeof EventKind>;

/** Best effort, for watching: one may be missing, and nothing waits for it. */
export const JobEvent = z.looseObject({
  schema: z.literal('gymbus.event.v1'),
  kind: EventKind,
  batch_id: Id,
  job_id: Id,
  attempt: AttemptId.nullable(),
  runner: z.string(),
  at: Timestamp,
  data: z.record(z.string(), z.json()),
});
export type JobEvent = z.infer<typeof JobEvent>;
