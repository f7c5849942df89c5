import { z } from 'zod';
import { AttemptId, Timestamp } from './id.ts';
import { FailureClass } from './result.ts';

/** One attempt as the bus remembers it. `ended_at` null: still playing, or its runner died. */
export const AttemptRecord = z.looseObject({
  attempt: AttemptId,
  runner: z.string(),
  started_at: Timestamp,
  ended_at: Timestamp.nullable(),
  class: FailureClass.nullable(),
  message: z.string().nullable(),
  /** The replica died under the attempt, whatever it was doing: its QEMU ended, or its kernel panicked. */
  replica_lost: z.boolean(),
});
export type AttemptRecord = z.infer<typeof AttemptRecord>;

/** Value of `<batch>.<job>` in GYMBUS_ATTEMPTS, written by compare-and-swap before the first guest action. */
export const AttemptHistory = z.looseObject({
  schema: z.literal('gymbus.attempts.v1'),
  /** Which job body, and which run of it (a retry has another fence), these attempts belong to. */
  job_sha256: z.string(),
  fence: z.number().int().nonnegative(),
  attempts: z.array(AttemptRecord),
});
export type AttemptHistory = z.infer<typeof AttemptHistory>;
