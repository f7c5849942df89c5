import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readRunners } from '../../runner/bus/heartbeat.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { expectSettled } from '../support/settled.ts';

describe.skipIf(!available('fault'))('what a runner tells of its replicas', () => {
  let gym: TestGym;
  let runner: RunnerProcess;
  beforeAll(async () => {
    gym = await openGym();
    // Kept by demand, as nothing is set: one that acts, one hot, two frozen.
    runner = await gym.start('capacity', { GYMBUS_READY: '' });
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  const page = async (): Promise<string[]> => {
    const { health_port } = await runner.logged('runner is ready');
    const response = await fetch(`http://127.0.0.1:${health_port}/metrics`);
    expect([response.status, response.headers.get('content-type')]).toEqual([
      ...[200, 'text/plain; version=0.0.4; charset=utf-8'],
    ]);
    return (await response.text()).split('\n');
  };
  const image = 'image="debian-desktop"';

  it('is in /metrics, in the heartbeat and in gymbus capacity alike', async () => {
    const jobs = [1, 2, 3].map((n) => quickJob('metrics', { job_id: `j${n}` }));
    for (const job of jobs) await gym.publish(job);
    for (const job of jobs) await expectSettled(gym, job);
    await expect
      .poll(page, { timeout: 60_000, interval: 500 })
      .toEqual(
        expect.arrayContaining([
          `gymbus_replicas{${image},phase="frozen"} 2`,
          `gymbus_replicas{${image},phase="hot"} 1`,
          `gymbus_replicas{${image},phase="leased"} 0`,
          `gymbus_replicas_wanted{${image},kind="hot"} 1`,
          `gymbus_deliveries_total{${image},end="committed",class="none"} 3`,
          `gymbus_outcomes_total{${image},status="completed"} 3`,
          `gymbus_claim_duration_seconds_count{${image},result="ok"} 3`,
          `gymbus_jobs_waiting{${image}} 0`,
          'gymbus_capacity_replicas{kind="acting",bound="setting"} 1',
        ]),
      );
    const lines = await page();
    const value = (start: string): number =>
      Number(
        lines
          .find((line) => line.startsWith(start))
          ?.split(' ')
          .at(-1),
      );
    expect(value('gymbus_clone_duration_seconds_count')).toBeGreaterThanOrEqual(6);
    expect(value('gymbus_memory_available_bytes')).toBeGreaterThan(2 ** 30);
    expect(value('gymbus_disk_available_bytes')).toBeGreaterThan(2 ** 30);
    expect(value('gymbus_capacity_replicas{kind="frozen"')).toBeGreaterThan(10);

    // A beat comes every ten seconds.
    await expect
      .poll(async () => (await readRunners(gym.bus))[0], { timeout: 30_000 })
      .toMatchObject({
        capacity: {
          acting: 1,
          ready: 1,
          frozen: 2,
          bound: 'setting',
          kinds: { acting: { count: 1, bound: 'setting' } },
        },
        warm: [{ image: 'debian-desktop', hot: 1, frozen: 2, waiting: 0, refused: null }],
      });

    const { stdout, exitCode } = await gym.cli('capacity', '--json');
    expect(exitCode).toBe(0);
    const report = JSON.parse(stdout);
    expect(report.runners).toContainEqual(
      expect.objectContaining({ runner: runner.id, frozen: 2, hot: 1, acting: 0, waits: false }),
    );
    expect(report.now.frozen).toBeGreaterThanOrEqual(2);
  });
});
