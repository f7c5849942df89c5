import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Result } from '../../schemas/index.ts';
import { openDesktopGym } from '../support/desktop-gym.ts';
import type { TestGym } from '../support/gym.ts';
import { available, osworldTasks } from '../support/requirement.ts';
import { expectSettled, settled } from '../support/settled.ts';
import { readPlayed } from '../support/trajectory.ts';
import { ORACLES } from './osworld-oracles.ts';

const TASKS = Object.keys(ORACLES);
/** All eight episodes, two or four at a time, on a machine that does other things as well. */
const PLAY_MS = 8 * 60_000;
const MOST_BYTES = 64 << 20;
const fileOf = (task: string): string => path.join(osworldTasks, 'os', `${task}.json`);

describe.skipIf(!available('vm') || !available('osworld'))("OSWorld's tasks, as they are", () => {
  let gym: TestGym;

  beforeAll(async () => {
    gym = await openDesktopGym('osworld', 4);
    const nothing = { actions: [{ type: 'done' }] };
    await submit('osworld-nothing', TASKS, 'scripted', nothing);
    for (const task of TASKS) {
      const oracle = ORACLES[task];
      await submit('osworld-oracle', [task], oracle?.name ?? '', oracle?.params ?? {});
    }
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  async function submit(batch: string, tasks: string[], policy: string, params: object): Promise<void> {
    const policyOptions = ['--policy', policy, '--params', JSON.stringify(params)];
    const command = ['submit', '--osworld', ...tasks.map(fileOf), '--batch', batch, ...policyOptions];
    const { stdout, stderr, exitCode } = await gym.cli(...command);
    expect(exitCode, stderr).toBe(0);
    expect(stdout).toBe(`${tasks.length} queued`);
  }

  async function outcome(batch: string, task: string, expected: Partial<Result>): Promise<Result> {
    const job = { batch_id: batch, job_id: task, image: 'debian-desktop', instruction: '', policy: { name: '' } };
    const played = { status: 'completed', valid: true, failure: null } as const;
    await settled(gym, { schema: 'gymbus.job.v1', ...job }, PLAY_MS);
    return expectSettled(gym, { schema: 'gymbus.job.v1', ...job }, { ...played, ...expected });
  }

  it.each(TASKS)(
    '%s: 1 for who does it',
    async (task) => {
      const result = await outcome('osworld-oracle', task, { score: 1 });
      expect(result.metadata).toMatchObject({ benchmark: 'osworld', task_id: task, domain: 'os' });
      const { steps } = await readPlayed(result, (key) => gym.store.get(key, MOST_BYTES));
      expect(steps).toHaveLength(result.steps + 1);
    },
    PLAY_MS,
  );

  it.each(TASKS)(
    '%s: 0 for who does nothing',
    async (task) => void (await outcome('osworld-nothing', task, { score: 0, steps: 1 })),
    PLAY_MS,
  );
});
