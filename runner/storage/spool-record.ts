import { z } from 'zod';
import { AttemptId, Id } from '../../schemas/index.ts';

export const SPOOL_RECORD = 'spool.json';

/** Whose an attempt's folder is: the first thing in it, and never uploaded. */
export const SpoolRecord = z.object({
  schema: z.literal('gymbus.spool.v1'),
  batch_id: Id,
  job_id: Id,
  attempt: AttemptId,
  /** Folder key in the bucket. */
  prefix: z.string(),
});
export type SpoolRecord = z.infer<typeof SpoolRecord>;
