import type { FailureClass, Status, TrajectoryJobInput } from '../../schemas/index.ts';
import { DEMO_JOBS, type DemoJob } from './jobs.ts';

export { DEMO_JOBS, type DemoJob };

/** The demo's jobs as a publisher writes them. */
export const demoBatch = (batch: string): TrajectoryJobInput[] => batchOf('debian-desktop', batch, DEMO_JOBS);

/** Jobs of an image, those of the office for example. */
export function batchOf(image: string, batch: string, jobs: readonly DemoJob[]): TrajectoryJobInput[] {
  return jobs.map(({ job }) => ({ schema: 'gymbus.job.v1', batch_id: batch, image, ...job }));
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
