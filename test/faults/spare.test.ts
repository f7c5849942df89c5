import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { available } from '../support/requirement.ts';
import { expectSettled } from '../support/settled.ts';

describe.skipIf(!available('fault'))('a machine that nobody uses yet', () => {
  let gym: TestGym;
  beforeAll(async () => {
    gym = await openGym();
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  it('killed while it is made beside a ready one: the ready one is used all the same', async () => {
    const runner = await gym.start('spare', { GYMBUS_FROZEN: '1' });
    const seen = new Set<string>();
    await eventually(async () => {
      for (const { uuid, pid } of await runner.machines()) {
        seen.add(uuid);
        if (seen.size < 2) continue;
        process.kill(pid, 'SIGKILL');
        return true;
      }
      return false;
    }, 60_000);
    await runner.logged(/^replica (failed|not made)$/);
    const job = quickJob('spare');
    await gym.publish(job);
    await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 1 });
    await runner.stop();
    expect(await runner.machines()).toEqual([]);
  });
});
