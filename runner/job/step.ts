import type { Policy, PolicyAnswer, RejectedAction } from '../../functions/contract.ts';
import type { Action, Observation, Step, TrajectoryJob } from '../../schemas/index.ts';
import type { Replica } from '../replica/contract.ts';
import { readAnswer } from './answer.ts';
import type { Clock } from './clock.ts';
import { LimitPassed, within } from './limit.ts';
import { type LookSettings, takePicture } from './observe.ts';
import { PartFailed } from './part-failed.ts';
import { type Performance, perform } from './perform.ts';
import type { Recorder } from './recorder.ts';

/** What the steps of one episode share. */
export interface Stage {
  job: TrajectoryJob;
  attempt: string;
  replica: Replica;
  recorder: Recorder;
  look: LookSettings;
  clock: Clock;
  policy: Policy;
  policyId: { name: string; version: string };
  /** When the time for steps is over, on the clock. */
  stepsEndMs: number;
  /** Told of a read that failed and is tried again. */
  onReadRetry(error: unknown): void;
}

/** What the next step builds on. */
export interface Scene {
  /** PNG; null where the job asks for none. */
  picture: Buffer | null;
  rejected: readonly RejectedAction[];
}

export type StepEnd =
  /** The policy answered and the desktop was looked at afterwards. */
  | {
      kind: 'played';
      scene: Scene;
      ending: Performance['ending'];
      lastAction: Action | null;
      truncated: boolean;
      timings: StepTimings;
    }
  /** The policy has nothing more to do; there is no such step. */
  | { kind: 'exhausted'; policyMs: number }
  /** The time for steps was over before the policy answered; there is no such step. */
  | { kind: typeof OUT_OF_TIME; policyMs: number };

const OUT_OF_TIME = 'out_of_time' as const;

interface StepTimings {
  policy: number;
  act: number;
  observe: number;
}

/**
 * One answer of the policy, its actions, and the look at the desktop after them, recorded as line `number`.
 * `step_s` bounds the answer and the actions, the look has a limit of its own.
 * @throws PartFailed; the signal's reason; the recorder's own errors
 */
export async function playStep(stage: Stage, number: number, before: Scene, signal: AbortSignal): Promise<StepEnd> {
  const { job, clock } = stage;
  const startedAt = clock.now();
  const beganMs = clock.monotonicMs();
  const stepDeadlineMs = beganMs + job.limits.step_s * 1_000;
  const deadlineMs = Math.min(stepDeadlineMs, stage.stepsEndMs);

  const answer = await ask(stage, number, before, deadlineMs - beganMs, signal).catch(
    (error: unknown): typeof OUT_OF_TIME => {
      // Whose time it was that passed tells the step's limit, a fault of the policy, from the episode's end.
      if (error instanceof PartFailed && error.cause instanceof LimitPassed && deadlineMs < stepDeadlineMs)
        return OUT_OF_TIME;
      throw error;
    },
  );
  const answeredMs = clock.monotonicMs();
  const policyMs = Math.round(answeredMs - beganMs);
  if (answer === null) return { kind: 'exhausted', policyMs };
  if (answer === OUT_OF_TIME) return { kind: OUT_OF_TIME, policyMs };

  const screen = stage.replica.guest.screen;
  const performance = await perform(answer.actions, stage.replica, { clock, deadlineMs, screen }, signal).catch(
    guestFailed('acting', signal),
  );
  const actedMs = clock.monotonicMs();
  const { observation, picture } = await observe(stage, number, performance.acted, signal);
  const endedMs = clock.monotonicMs();

  const timings = {
    policy: policyMs,
    act: Math.round(actedMs - answeredMs),
    observe: Math.round(endedMs - actedMs),
  };
  const terminated = performance.ending !== null;
  const truncated = !terminated && (number >= job.limits.max_steps || endedMs >= stage.stepsEndMs);
  await write(stage, number, {
    actions: answer.actions,
    thoughts: answer.thoughts ?? null,
    maybe_delivered: performance.maybeDelivered,
    rejected: performance.rejected,
    observation,
    started_at: startedAt.toISOString(),
    timings_ms: { ...timings },
    terminated,
    truncated,
  });
  return {
    kind: 'played',
    scene: { picture, rejected: performance.rejected },
    ending: performance.ending,
    lastAction: performance.ending ?? answer.actions.at(-1) ?? null,
    truncated,
    timings,
  };
}

/** The desktop as the policy first sees it, recorded as line 0. */
export async function playReset(stage: Stage, signal: AbortSignal): Promise<Scene> {
  const startedAt = stage.clock.now();
  const beganMs = stage.clock.monotonicMs();
  const { observation, picture } = await observe(stage, 0, true, signal);
  await write(stage, 0, {
    actions: [],
    thoughts: null,
    maybe_delivered: [],
    rejected: [],
    observation,
    started_at: startedAt.toISOString(),
    timings_ms: { observe: Math.round(stage.clock.monotonicMs() - beganMs) },
    terminated: false,
    truncated: false,
  });
  return { picture, rejected: [] };
}

async function ask(
  { job, policy, replica }: Stage,
  number: number,
  { picture, rejected }: Scene,
  limitMs: number,
  signal: AbortSignal,
): Promise<PolicyAnswer | null> {
  const input = {
    step: number,
    instruction: job.instruction,
    screen: replica.guest.screen,
    screenshot: picture,
    rejected,
  };
  let answer: unknown;
  try {
    answer = await within(limitMs, 'the answer of the policy', signal, (inner) => policy.act(input, inner));
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw new PartFailed('policy', `step ${number}: ${messageOf(error)}`, error);
  }
  return readAnswer(answer);
}

async function observe(
  { job, replica, recorder, look, clock, stepsEndMs, onReadRetry }: Stage,
  number: number,
  settled: boolean,
  signal: AbortSignal,
): Promise<{ observation: Observation; picture: Buffer | null }> {
  // Taken even where nobody asked for it: it proves that the machine still answers.
  const settleMs = settled ? stepsEndMs - clock.monotonicMs() : 0;
  const picture = await takePicture(replica, look, settleMs, signal, onReadRetry).catch(
    guestFailed('observing', signal),
  );
  const taken_at = clock.now().toISOString();
  if (!job.observation.screenshot)
    return { observation: { taken_at, screenshot: null, a11y_tree: null }, picture: null };
  const screenshot = await recorder.screenshot(number, picture);
  return { observation: { taken_at, screenshot, a11y_tree: null }, picture };
}

type Line = Pick<
  Step,
  | 'actions'
  | 'thoughts'
  | 'maybe_delivered'
  | 'rejected'
  | 'observation'
  | 'started_at'
  | 'timings_ms'
  | 'terminated'
  | 'truncated'
>;

async function write({ job, attempt, recorder, policyId }: Stage, number: number, line: Line): Promise<void> {
  await recorder.step({
    schema: 'gymbus.step.v1',
    batch_id: job.batch_id,
    job_id: job.job_id,
    attempt,
    step: number,
    policy: policyId,
    ...line,
  });
  const { actions, terminated, truncated } = line;
  recorder.event('step', { step: number, actions: actions.length, terminated, truncated });
}

function guestFailed(doing: string, signal: AbortSignal): (error: unknown) => never {
  return (error) => {
    if (signal.aborted) throw signal.reason;
    throw new PartFailed('guest', `${doing}: ${messageOf(error)}`, error);
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
