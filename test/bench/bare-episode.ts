import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { playEpisode } from '../../runner/job/episode.ts';
import { LOOK_DEFAULTS } from '../../runner/job/observe.ts';
import type { Recorder } from '../../runner/job/recorder.ts';
import type { Replica } from '../../runner/replica/contract.ts';
import { TrajectoryJob, type TrajectoryJobInput } from '../../schemas/index.ts';

export const STEPS = 10;
/** After each action, as in the figure's definition; no more is waited for. */
export const SETTLE_MS = 200;

/** Ten steps that change the picture, a command before and one after. */
export function benchJob(batch: string, number: number): TrajectoryJobInput {
  const actions = Array.from({ length: STEPS }, (_, step) => {
    return { type: 'click', x: 200 + step * 80, y: 150 + step * 40, button: step % 2 === 0 ? 'right' : 'left' };
  });
  return {
    schema: 'gymbus.job.v1',
    batch_id: batch,
    job_id: `episode-${number}`,
    image: 'debian-desktop',
    instruction: 'Click here and there.',
    setup: [{ type: 'execute', parameters: { command: ['mkdir', '-p', '/home/user/Desktop/todo'] } }],
    policy: { name: 'scripted', params: { actions } },
    evaluator: {
      func: 'exact_match',
      result: { type: 'vm_command_line', command: ['ls', '/home/user/Desktop'] },
      expected: { type: 'rule', rules: { expected: 'todo\n' } },
    },
    seed: number,
  };
}

/**
 * Plays one without bus and storage: pictures are taken and hashed, and go nowhere.
 * @param thinkMs spent at each step without asking anything of the host: the time a model needs for its answer
 * @param onPhase told of each part that begins
 * @throws when it does not score 1
 */
export async function playBare(
  replica: Replica,
  number: number,
  signal: AbortSignal,
  { thinkMs = 0, onPhase = () => undefined }: { thinkMs?: number; onPhase?: (phase: string) => void } = {},
): Promise<void> {
  const job = TrajectoryJob.parse(benchJob('bare', number));
  const recorder: Recorder = {
    screenshot: async (step, png) => ({
      ...{ key: `step-${step}`, bytes: png.byteLength, sha256: createHash('sha256').update(png).digest('hex') },
      ...replica.guest.screen,
    }),
    step: () => sleep(thinkMs, undefined, { signal }),
    setup: async () => undefined,
    event: () => undefined,
  };
  const end = await playEpisode({
    ...{ job, attempt: '1-benchbench', replica, recorder, signal, onPhase },
    context: {
      ...{ job, screen: replica.guest.screen, bucket: 'none', downloads: { maxBytes: 0, allowPrivate: false } },
      readInput: () => Promise.reject(new Error('the bench has no inputs')),
    },
    look: { ...LOOK_DEFAULTS, settle: { minMs: SETTLE_MS, maxMs: SETTLE_MS } },
  });
  if (end.score !== 1) throw new Error(`a bare episode scored ${end.score}`);
}
