import type { FailureClass, Status, TrajectoryJobInput } from '../../schemas/index.ts';
import { DEMO_JOBS, type DemoJob } from './jobs.ts';

export { DEMO_JOBS, type DemoJob };

const IMAGE = 'debian-desktop';

/** The demo's jobs as a publisher writes them. */
export function demoBatch(batchId: string): TrajectoryJobInput[] {
  return DEMO_JOBS.map(({ job }) => ({ schema: 'gymbus.job.v1', batch_id: batchId, image: IMAGE, ...job }));
}

/** Why an outcome is not the expected one; null when it is. */
export function unexpected(
  { expect }: DemoJob,
  outcome: { status: Status; score: number | null; failure: { class: FailureClass } | null },
): string | null {
  const found = { status: outcome.status, score: outcome.score, class: outcome.failure?.class ?? null };
  const wanted = { status: expect.status, score: expect.score, class: expect.class ?? null };
  const differing = (['status', 'score', 'class'] as const).filter((key) => found[key] !== wanted[key]);
  return differing.length === 0
    ? null
    : differing.map((key) => `${key} is ${found[key]}, not ${wanted[key]}`).join(', ');
}
