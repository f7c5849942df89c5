import { z } from 'zod';
import { Timestamp } from './id.ts';
import { Accelerator } from './result.ts';

export const ReplicaPhase = z.enum([
  'cloning',
  'restoring',
  'frozen',
  'gating',
  'hot',
  'leased',
  'discarded',
  'failed',
]);
export type ReplicaPhase = z.infer<typeof ReplicaPhase>;

/** A runner's heartbeat: value of its id in GYMBUS_RUNNERS, gone after three missed beats. */
export const RunnerStatus = z.looseObject({
  schema: z.literal('gymbus.runner.v1'),
  runner: z.string(),
  version: z.string(),
  pid: z.number().int(),
  state: z.enum(['starting', 'running', 'holding', 'draining']),
  /** Why it is not pulling, when it is not. */
  reason: z.string().nullable(),
  accelerator: Accelerator.nullable().describe('Null until it is known'),
  images: z.array(z.looseObject({ name: z.string(), digest: z.string() })),
  functions: z.array(z.string()).describe('`policy:scripted`, `setup:execute`, `metric:exact_match`, ...'),
  capacity: z.looseObject({ acting: z.number().int(), ready: z.number().int(), bound: z.string() }),
  replicas: z.partialRecord(ReplicaPhase, z.number().int()),
  load: z.looseObject({
    load1: z.number(),
    memory_available_bytes: z.number(),
    disk_available_bytes: z.number(),
    spool_bytes: z.number(),
  }),
  started_at: Timestamp,
  at: Timestamp,
});
export type RunnerStatus = z.infer<typeof RunnerStatus>;
