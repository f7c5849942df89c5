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
  images: z.array(
    z.looseObject({
      name: z.string(),
      digest: z.string(),
      network: z.array(z.string()).optional().describe('Hosts that its jobs may ask for'),
    }),
  ),
  functions: z.array(z.string()).describe('`policy:scripted`, `setup:execute`, `metric:exact_match`, ...'),
  capacity: z.looseObject({
    acting: z.number().int().describe('Replicas that may act at once'),
    ready: z.number().int().describe('Hot replicas kept of an image, at most'),
    frozen: z.number().int().optional().describe('Frozen ones kept behind them, at most'),
    bound: z.string().describe('What keeps `acting` from being more'),
    kinds: z
      .record(z.enum(['frozen', 'hot', 'acting']), z.looseObject({ count: z.number().int(), bound: z.string() }))
      .optional()
      .describe('Of each kind how many the host can hold, and what bounds it'),
  }),
  replicas: z.partialRecord(ReplicaPhase, z.number().int()),
  warm: z
    .array(
      z.looseObject({
        image: z.string(),
        phases: z.partialRecord(ReplicaPhase, z.number().int()),
        hot: z.number().int().describe('Hot replicas to be kept now'),
        frozen: z.number().int().describe('Frozen ones to be kept now'),
        waiting: z.number().int().describe('Jobs in the queue that nobody has begun, as far as is known'),
        refused: z.string().nullable().describe('Why there are fewer, or fewer act, than there might be'),
      }),
    )
    .optional()
    .describe('Replicas of each image'),
  load: z.looseObject({
    load1: z.number(),
    memory_available_bytes: z.number(),
    disk_available_bytes: z.number(),
    spool_bytes: z.number(),
    memory_pressure: z
      .looseObject({ some: z.number(), full: z.number() })
      .nullable()
      .optional()
      .describe(
        'Percent of the last 10 s in which some, or all, tasks of the host waited for memory; null where it is not known',
      ),
  }),
  started_at: Timestamp,
  at: Timestamp,
});
export type RunnerStatus = z.infer<typeof RunnerStatus>;
