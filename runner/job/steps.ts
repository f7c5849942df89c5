import type { Action, Result } from '../../schemas/index.ts';
import type { EpisodeProgress } from './progress.ts';
import { playReset, playStep, type Scene, type Stage } from './step.ts';

/** How the steps ended. */
export interface StepsEnd {
  /** The policy ended it. */
  terminated: boolean;
  /** A limit ended it; it is still evaluated. */
  truncated: boolean;
  stopReason: NonNullable<Result['stop_reason']>;
  lastAction: Action | null;
  /** The answer of a `done` or the reason of a `fail`, where it gave one. */
  answer: string | null;
}

/** The reset observation, then step after step until the policy or a limit ends it. */
export async function playSteps(stage: Stage, progress: EpisodeProgress, signal: AbortSignal): Promise<StepsEnd> {
  const beganMs = stage.clock.monotonicMs();
  let policyMs = 0;
  try {
    let scene: Scene = await playReset(stage, signal);
    let lastAction: Action | null = null;
    const truncatedBy = (stopReason: 'max_steps' | 'total_s'): StepsEnd => ({
      ...{ terminated: false, truncated: true, stopReason, lastAction, answer: null },
    });

    for (;;) {
      if (stage.clock.monotonicMs() >= stage.stepsEndMs) return truncatedBy('total_s');
      const step = await playStep(stage, progress.steps + 1, scene, signal);
      policyMs += step.kind === 'played' ? step.timings.policy : step.policyMs;
      if (step.kind === 'out_of_time') return truncatedBy('total_s');
      if (step.kind === 'exhausted') {
        return { terminated: true, truncated: false, stopReason: 'policy_exhausted', lastAction, answer: null };
      }
      progress.steps++;
      ({ scene, lastAction } = step);
      if (step.ending) {
        const { ending } = step;
        const answer = (ending.type === 'done' ? ending.answer : ending.reason) ?? null;
        return { terminated: true, truncated: false, stopReason: ending.type, lastAction, answer };
      }
      if (step.truncated) return truncatedBy(progress.steps >= stage.job.limits.max_steps ? 'max_steps' : 'total_s');
    }
  } finally {
    progress.timingsMs.policy = policyMs;
    progress.timingsMs.steps = Math.round(stage.clock.monotonicMs() - beganMs) - policyMs;
  }
}
