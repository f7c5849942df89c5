import { z } from 'zod';
import { AttemptId, Id, Sha256, TimingsMs } from './id.ts';
import { Result } from './result.ts';
import { StoredObject } from './step.ts';

/** Written last: an attempt without a manifest is unfinished by definition. Lists every other object of the attempt. */
export const Manifest = z.looseObject({
  schema: z.literal('gymbus.manifest.v1'),
  batch_id: Id,
  job_id: Id,
  attempt: AttemptId,
  job_sha256: Sha256,
  outcome: Result.describe('The outcome this attempt asked for; the committed one is result.json'),
  objects: z.array(StoredObject.extend({ content_type: z.string() })),
  versions: z.record(z.string(), z.string()),
  timings_ms: TimingsMs,
});
export type Manifest = z.infer<typeof Manifest>;
