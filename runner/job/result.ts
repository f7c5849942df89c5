import type {
  Accelerator,
  Failure,
  HostUse,
  JobAddress,
  Result,
  TimingsMs,
  TrajectoryJob,
} from '../../schemas/index.ts';

/** What every outcome of a job says, whoever ends it. */
export interface OutcomeBasis {
  address: JobAddress;
  jobSha256: string;
  runner: string;
  /** The job, where its body could be read. */
  job: TrajectoryJob | null;
  startedAt: Date;
}

/** What an attempt adds. */
export interface AttemptBasis {
  attempt: string;
  trajectory: string;
  imageDigest: string;
  accelerator: Accelerator;
  /** Null where the job asked for no hosts. */
  network: HostUse[] | null;
  timingsMs: TimingsMs;
}

/** What a played episode adds. */
export interface EpisodeBasis {
  steps: number;
  terminated: boolean;
  truncated: boolean;
  stopReason: Result['stop_reason'];
  answer: string | null;
}

interface Ending {
  attempts: number;
  attempt?: AttemptBasis;
  episode?: EpisodeBasis;
}

/** The episode was played to its end. `score` null: the job had no evaluator. */
export function completed(basis: OutcomeBasis, ending: Required<Ending>, score: number | null): Result {
  return outcome(basis, ending, { status: 'completed', valid: true, score, failure: null });
}

/** The infrastructure, not the agent, decided: no score, not valid. */
export function unfinished(
  basis: OutcomeBasis,
  ending: Ending,
  status: 'failed' | 'dead' | 'cancelled',
  failure: Failure,
): Result {
  return outcome(basis, ending, { status, valid: false, score: null, failure });
}

function outcome(
  basis: OutcomeBasis,
  { attempts, attempt, episode }: Ending,
  verdict: Pick<Result, 'status' | 'valid' | 'score' | 'failure'>,
): Result {
  return {
    schema: 'gymbus.result.v1',
    batch_id: basis.address.batch,
    job_id: basis.address.job,
    job_sha256: basis.jobSha256,
    attempt: attempt?.attempt ?? null,
    attempts,
    ...verdict,
    reward: verdict.score,
    terminated: episode?.terminated ?? false,
    truncated: episode?.truncated ?? false,
    stop_reason: episode?.stopReason ?? null,
    steps: episode?.steps ?? 0,
    trajectory: attempt?.trajectory ?? null,
    runner: basis.runner,
    image_digest: attempt?.imageDigest ?? null,
    accelerator: attempt?.accelerator ?? null,
    answer: episode?.answer ?? null,
    ...(attempt?.network ? { network: attempt.network } : {}),
    metadata: basis.job?.metadata ?? {},
    started_at: basis.startedAt.toISOString(),
    finished_at: new Date().toISOString(),
    timings_ms: attempt?.timingsMs ?? {},
  };
}
