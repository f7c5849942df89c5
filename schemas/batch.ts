import { z } from 'zod';
import { Timestamp } from './id.ts';

/** Value of `<batch>` in GYMBUS_BATCHES; every field is optional, and the record itself is. */
export const BatchRecord = z.looseObject({
  schema: z.literal('gymbus.batch.v1'),
  size: z.number().int().nonnegative().optional(),
  labels: z.record(z.string(), z.string()).optional(),
  priority: z.number().int().optional(),
  paused: z.boolean().optional(),
  cancelled: z.boolean().optional(),
  updated_at: Timestamp.optional(),
});
export type BatchRecord = z.infer<typeof BatchRecord>;
