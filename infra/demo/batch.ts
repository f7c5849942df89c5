import type { FailureClass, Status, TrajectoryJobInput } from '../../schemas/index.ts';

/** A job of the demo, and how it must end. */
export interface DemoJob {
  job: Omit<TrajectoryJobInput, 'schema' | 'batch_id' | 'image'>;
  expect: { status: Status; score: number | null; class?: FailureClass };
}

const IMAGE = 'debian-desktop';

export const DEMO_JOBS: readonly DemoJob[] = [
  {
    job: {
      job_id: 'battery',
      instruction: 'Show the battery percentage on the panel.',
      policy: { name: 'scripted', params: { actions: [{ type: 'fail', reason: 'This machine has no battery.' }] } },
      evaluator: { func: 'infeasible' },
    },
    expect: { status: 'completed', score: 1 },
  },
];

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
