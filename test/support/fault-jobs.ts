import type { SetupStep, TrajectoryJobInput } from '../../schemas/index.ts';

/** A job that takes a second: a click, a command that is scored, score 1. */
export function quickJob(batch: string, over: Partial<TrajectoryJobInput> = {}): TrajectoryJobInput {
  return {
    schema: 'gymbus.job.v1',
    batch_id: batch,
    job_id: 'one',
    image: 'debian-desktop',
    instruction: 'Click, and be done.',
    policy: { name: 'scripted', params: { actions: [{ type: 'move', x: 300, y: 300 }, { type: 'done' }] } },
    evaluator: {
      func: 'exact_match',
      result: { type: 'vm_command_line', command: ['echo', 'there'] },
      expected: { type: 'rule', rules: { expected: 'there\n' } },
    },
    ...over,
  };
}

/** Each of its parts takes long enough to be met in it: set-up, three steps, evaluation. */
export function slowJob(batch: string, over: Partial<TrajectoryJobInput> = {}): TrajectoryJobInput {
  const wait = { type: 'wait', seconds: 1 };
  return quickJob(batch, {
    setup: [guestSleep(1)],
    policy: { name: 'scripted', params: { actions: [wait, wait, { type: 'done' }] } },
    evaluator: {
      func: 'exact_match',
      result: { type: 'vm_command_line', command: 'sleep 1; echo there', shell: true },
      expected: { type: 'rule', rules: { expected: 'there\n' } },
    },
    ...over,
  });
}

function guestSleep(seconds: number): SetupStep {
  return { type: 'execute', parameters: { command: ['sleep', String(seconds)] } };
}
