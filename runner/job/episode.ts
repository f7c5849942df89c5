import { setTimeout as sleep } from 'node:timers/promises';
import type { JobContext } from '../../functions/contract.ts';
import { type Evaluation, evaluate } from '../../functions/evaluation/evaluate.ts';
import { builtinFunctions, type Functions } from '../../functions/registry.ts';
import { runSetup } from '../../functions/setup/run.ts';
import type { Action, Evaluator, TimingsMs, TrajectoryJob } from '../../schemas/index.ts';
import type { Replica } from '../replica/contract.ts';
import { type Clock, systemClock } from './clock.ts';
import { joinSignals } from './limit.ts';
import type { LookSettings } from './observe.ts';
import { part } from './part.ts';
import { PartFailed } from './part-failed.ts';
import { type EpisodePhase, type EpisodeProgress, freshProgress } from './progress.ts';
import type { Recorder } from './recorder.ts';
import { SetupLog } from './setup-log.ts';
import type { Stage } from './step.ts';
import { playSteps, type StepsEnd } from './steps.ts';
import { type Timetable, timetable } from './timetable.ts';

export interface EpisodeParams {
  job: TrajectoryJob;
  attempt: string;
  /** Claimed; `total_s` counts from this call. */
  replica: Replica;
  context: JobContext;
  recorder: Recorder;
  look: LookSettings;
  /** Lease lost, cancelled, told to stop: the episode ends with its reason as soon as nothing is in its way. */
  signal: AbortSignal;
  functions?: Functions;
  clock?: Clock;
  progress?: EpisodeProgress;
  /** Done before the set-up. */
  prepare?(signal: AbortSignal): Promise<void>;
  onPhase?(phase: EpisodePhase): void;
  /** Told of each read of the guest that failed and is tried again. */
  onReadRetry?(error: unknown): void;
}

export interface EpisodeEnd extends StepsEnd {
  steps: number;
  /** 0 to 1; null without an evaluator. */
  score: number | null;
  metrics: Evaluation['metrics'];
  timingsMs: TimingsMs;
}

/** A replica's death is often first seen as a failed call; its own word for it follows within this time. */
const LOST_GRACE_MS = 500;

/**
 * Plays one episode on a claimed replica: set-up, the reset observation, answer after answer of the policy, evaluation.
 * Whatever ends it first is what it ends with; nothing goes on in the guest after that, and nothing is repeated.
 * @throws PartFailed with the part that failed; the reason of `signal`; the recorder's own errors as they are
 */
export async function playEpisode(params: EpisodeParams): Promise<EpisodeEnd> {
  const { replica, signal } = params;
  const play: Play = {
    ...params,
    functions: params.functions ?? builtinFunctions,
    clock: params.clock ?? systemClock,
    progress: params.progress ?? freshProgress(),
  };
  using stop = joinSignals(signal, replica.lost);
  try {
    return await playThrough(play, stop.signal);
  } catch (error) {
    const ofGuest = error instanceof PartFailed && error.part !== 'policy';
    if (ofGuest && !stop.signal.aborted) await aborted(stop.signal, LOST_GRACE_MS);
    if (!stop.signal.aborted) throw error;
    const { reason } = stop.signal;
    if (!replica.lost.aborted || reason !== replica.lost.reason) throw reason;
    const cause = reason instanceof Error ? reason.message : String(reason);
    throw new PartFailed('guest', `the replica was lost during ${play.progress.phase ?? 'start'}: ${cause}`, reason);
  }
}

type Play = EpisodeParams & Required<Pick<EpisodeParams, 'functions' | 'clock' | 'progress'>>;

async function playThrough(play: Play, signal: AbortSignal): Promise<EpisodeEnd> {
  const { job, attempt, replica, recorder, look, clock, progress } = play;
  const times = timetable(job.limits, job.evaluator !== undefined, clock.monotonicMs());
  const enter = (phase: EpisodePhase): void => {
    signal.throwIfAborted();
    progress.phase = phase;
    play.onPhase?.(phase);
  };

  await play.prepare?.(signal);
  enter('setup');
  recorder.event('setup', { steps: job.setup.length });
  await setUp(play, times, signal);

  enter('steps');
  const stage: Stage = {
    ...{ job, attempt, replica, recorder, look, clock, stepsEndMs: times.stepsEndMs },
    ...makePolicy(play),
    onReadRetry: (error) => play.onReadRetry?.(error),
  };
  const end = await playSteps(stage, progress, signal);

  let evaluation: Evaluation | null = null;
  if (job.evaluator) {
    enter('evaluate');
    recorder.event('evaluating', { steps: progress.steps });
    evaluation = await score(play, job.evaluator, end.lastAction, times, signal);
  }
  return {
    ...end,
    steps: progress.steps,
    score: evaluation?.score ?? null,
    metrics: evaluation?.metrics ?? [],
    timingsMs: progress.timingsMs,
  };
}

function setUp(
  { job, replica, context, recorder, functions, clock, progress }: Play,
  times: Timetable,
  signal: AbortSignal,
): Promise<void> {
  const log = new SetupLog('setup', recorder, clock);
  return part('setup', { bound: times.setup, log, clock, progress }, signal, (inner) =>
    runSetup(job.setup, functions, { guest: replica.guest, context }, inner, log),
  );
}

function score(
  { replica, context, recorder, functions, clock, progress }: Play,
  evaluator: Evaluator,
  lastAction: Action | null,
  times: Timetable,
  signal: AbortSignal,
): Promise<Evaluation> {
  const log = new SetupLog('postconfig', recorder, clock);
  const bound = times.evaluation(clock.monotonicMs());
  return part('evaluator', { bound, log, clock, progress }, signal, (inner) =>
    evaluate({ evaluator, lastAction, functions, guest: replica.guest, context, postconfigListener: log }, inner),
  );
}

function makePolicy({ job, functions, context }: Play): Pick<Stage, 'policy' | 'policyId'> {
  const { name, params } = job.policy;
  try {
    const known = functions.policies.get(name);
    if (!known) throw new Error(`there is no policy ${JSON.stringify(name)}`);
    return {
      policy: known.create(known.params.parse(params), context),
      policyId: { name, version: known.version },
    };
  } catch (error) {
    throw new PartFailed('policy', `policy ${name} cannot be made: ${(error as Error).message}`, error);
  }
}

/** Resolves when the signal is aborted, at the latest after `ms`. */
async function aborted(signal: AbortSignal, ms: number): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
}
