import { z } from 'zod';
import { Id, ImageName } from './id.ts';
import { joinProblems, printable, readBy } from './issues.ts';
import { NetworkRequest } from './network.ts';

export const JOB_SCHEMA = 'gymbus.job.v1';

/** A set-up step in OSWorld's shape; which types exist and their parameters are the setup functions' own schemas. */
export const SetupStep = z.strictObject({
  type: z.string().min(1).max(64),
  parameters: z.record(z.string(), z.json()).default({}),
});
export type SetupStep = z.infer<typeof SetupStep>;

/** A getter in OSWorld's shape: `type` names it, every other field is its parameter. */
export const Getter = z.looseObject({ type: z.string().min(1).max(64) });
export type Getter = z.infer<typeof Getter>;

/** Metrics of one evaluator, with what each looks at; OSWorld's tasks have at most 3. */
const MOST_METRICS = 64;
/** OSWorld's tasks have at most 8. */
const MOST_SETUP_STEPS = 256;

const oneOrMany = <T extends z.ZodType>(item: T) => z.union([item, z.array(item).max(MOST_METRICS)]);

/** OSWorld's evaluator: metrics over getters, joined by `conj`; lists run side by side and have equal length. */
export const Evaluator = z.strictObject({
  func: oneOrMany(z.string().min(1).max(64)),
  result: oneOrMany(Getter.nullable()).optional(),
  expected: oneOrMany(Getter.nullable()).optional(),
  options: oneOrMany(z.record(z.string(), z.json()).nullable()).optional(),
  conj: z.enum(['and', 'or']).default('and'),
  postconfig: z.array(SetupStep).max(MOST_SETUP_STEPS).default([]),
});
export type Evaluator = z.infer<typeof Evaluator>;

export const PolicyRef = z.strictObject({
  name: z.string().min(1).max(128),
  params: z.record(z.string(), z.json()).default({}),
});
export type PolicyRef = z.infer<typeof PolicyRef>;

/** One delivery of a job has six hours, its waiting, its uploads and its commit included. */
const MOST_SECONDS = 5 * 3_600;
const seconds = (fallback: number) => z.number().positive().max(MOST_SECONDS).default(fallback);

export const Limits = z.strictObject({
  max_steps: z
    .number()
    .int()
    .min(1)
    .max(1_000)
    .default(15)
    .describe('Answers of the policy; the episode is truncated after the last'),
  setup_s: seconds(60).describe('All set-up steps together'),
  step_s: seconds(30).describe('One answer of the policy and its actions'),
  evaluate_s: seconds(60).describe('Evaluation, its postconfig included'),
  total_s: seconds(600).describe(
    'Set-up, steps and evaluation together, from the claimed replica. Of it evaluate_s, at most a quarter of all, is kept for the evaluation; when the rest is over the episode is truncated, and still evaluated',
  ),
});
export type Limits = z.infer<typeof Limits>;

/** It comes back in the result, which is one message of the bus: 1 MiB. Numbers may be longer there than they were written. */
const MAX_METADATA_BYTES = 256 * 1024;

/** One episode to play. Strict: an unknown field is an error that names it. Identity is (batch_id, job_id). */
export const TrajectoryJob = z.strictObject({
  schema: z.literal(JOB_SCHEMA),
  batch_id: Id,
  job_id: Id,
  image: ImageName,
  instruction: z.string().max(65_536),
  setup: z.array(SetupStep).max(MOST_SETUP_STEPS).default([]),
  policy: PolicyRef,
  evaluator: Evaluator.optional().describe('Without one the trajectory is recorded and its score is null'),
  observation: z
    .strictObject({ screenshot: z.boolean().default(true), a11y_tree: z.boolean().default(false) })
    .prefault({}),
  network: NetworkRequest.optional().describe(
    'Hosts the guest may reach, each of which the policy of its image must allow; without it, none',
  ),
  limits: Limits.prefault({}),
  retry: z.strictObject({ max_attempts: z.number().int().min(1).max(20).default(3) }).prefault({}),
  seed: z.number().int().nonnegative().default(0),
  metadata: z
    .record(z.string(), z.json())
    .default({})
    .refine(
      (given) => Buffer.byteLength(JSON.stringify(given)) <= MAX_METADATA_BYTES,
      'must be at most 256 KiB of JSON',
    ),
});
export type TrajectoryJob = z.infer<typeof TrajectoryJob>;
/** A job as a publisher writes it, defaults left out. */
export type TrajectoryJobInput = z.input<typeof TrajectoryJob>;

export type ParsedJob =
  | { kind: 'job'; job: TrajectoryJob }
  /** A later minor version than this build reads: not wrong, only not for us. */
  | { kind: 'newer'; version: string }
  | { kind: 'invalid'; reason: string };

/**
 * Reads a job message. Never throws: what is wrong is said in `reason`, field by field, each with the value received.
 * @param bytes the message body, UTF-8 JSON
 */
export function parseJob(bytes: Uint8Array): ParsedJob {
  let body: unknown;
  try {
    body = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    return { kind: 'invalid', reason: `not UTF-8 JSON: ${printable((error as Error).message)}` };
  }
  const excess = excessOf(body);
  if (excess !== null) return { kind: 'invalid', reason: excess };
  const version = typeof body === 'object' && body !== null && 'schema' in body ? body.schema : undefined;
  if (typeof version === 'string' && /^gymbus\.job\.v1\.[1-9][0-9]*$|^gymbus\.job\.v[2-9][0-9.]*$/.test(version)) {
    return { kind: 'newer', version };
  }
  const read = readBy(TrajectoryJob, body);
  return read.ok ? { kind: 'job', job: read.data } : { kind: 'invalid', reason: joinProblems(read.problems) };
}

/** A job that means something has about ten; what reads and writes it calls itself once a level. */
const MAX_DEPTH = 64;
/**
 * Fields and entries of lists, whatever they are in. OSWorld's largest task has 217, a scripted episode of a thousand steps
 * some 5,000; 512 KiB hold 250,000. A schema looks at all of them, and names each that is wrong before the first is told:
 * at these, a tenth of a second.
 */
const MAX_VALUES = 20_000;

/** @returns why a body is not to be looked at any closer; null for one of a sound size */
function excessOf(body: unknown): string | null {
  let values = 0;
  const isDeeper = (value: unknown, levels: number): boolean => {
    values += 1;
    if (values > MAX_VALUES || typeof value !== 'object' || value === null) return false;
    return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
  };
  if (isDeeper(body, MAX_DEPTH)) return `nested more than ${MAX_DEPTH} levels deep`;
  if (values <= MAX_VALUES) return null;
  return `has more than ${MAX_VALUES} values (fields, and entries of lists); put what is large into a file under inputs/<batch>/ in S3 and name it`;
}
