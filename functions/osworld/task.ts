import { z } from 'zod';
import { joinProblems, type Limits, readBy, TrajectoryJob, type TrajectoryJobInput } from '../../schemas/index.ts';

/** An OSWorld task file, as far as a job is made of it; every other field goes along as metadata. */
const OsworldTask = z.looseObject({
  id: z.string(),
  instruction: z.string(),
  config: z.array(z.unknown()).default([]),
  evaluator: z.record(z.string(), z.unknown()),
});

export interface OsworldJobOptions {
  batchId: string;
  policy: { name: string; params?: TrajectoryJobInput['policy']['params'] };
  /** `debian-desktop` unless told otherwise. */
  image?: string;
  /** The task's own id unless told otherwise. */
  jobId?: string;
  /** The folder it came from, e.g. `os`: the file itself does not say. */
  domain?: string;
  limits?: Partial<Limits>;
}

/** The task is no OSWorld task, or no job can be made of it. */
export class OsworldTaskError extends Error {
  override readonly name = 'OsworldTaskError';
}

const DEFAULT_IMAGE = 'debian-desktop';
/** OSWorld gives set-up and scoring no limit of their own; under emulation its programs start slowly. */
const LIMITS: Limits = { max_steps: 15, setup_s: 600, step_s: 60, evaluate_s: 300, total_s: 3_600 };

/**
 * Makes a job of an OSWorld task file as it is: `config` becomes the set-up, the evaluator stays, all else is metadata.
 * Whether this version has the functions it names is told by `checkJob`.
 * @param task the parsed JSON of the file
 * @throws OsworldTaskError naming the field
 */
export function osworldTaskToJob(task: unknown, options: OsworldJobOptions): TrajectoryJobInput {
  const read = readBy(OsworldTask, task);
  if (!read.ok) throw new OsworldTaskError(`no OSWorld task: ${joinProblems(read.problems)}`);
  const { id, instruction, config, evaluator, ...rest } = read.data;
  const job: unknown = {
    schema: 'gymbus.job.v1',
    batch_id: options.batchId,
    job_id: options.jobId ?? id,
    image: options.image ?? DEFAULT_IMAGE,
    instruction,
    setup: config,
    policy: options.policy,
    evaluator,
    limits: { ...LIMITS, ...options.limits },
    metadata: {
      benchmark: 'osworld',
      task_id: id,
      ...(options.domain === undefined ? {} : { domain: options.domain }),
      ...rest,
    },
  };
  const checked = readBy(TrajectoryJob, job);
  if (!checked.ok) throw new OsworldTaskError(`task ${id} makes no job: ${joinProblems(checked.problems)}`);
  // As a publisher writes it: the parsed one would carry every default.
  return job as TrajectoryJobInput;
}
