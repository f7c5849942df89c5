import { describe, expect, it } from 'vitest';
import { Metrics } from '../../runner/host/metrics.ts';
import { sampleStatus } from '../support/samples.ts';

const busy = sampleStatus({
  ...{ state: 'holding', reason: 'memory: 1 more would leave 0.8 GiB, floor is 1 GiB' },
  capacity: {
    ...{ acting: 6, ready: 6, frozen: 6, bound: 'cpu' },
    kinds: {
      ...{ frozen: { count: 900, bound: 'memory' }, hot: { count: 200, bound: 'memory' } },
      acting: { count: 6, bound: 'cpu' },
    },
  },
  warm: [{ image: 'desk', phases: { frozen: 4, hot: 2, leased: 1 }, hot: 3, frozen: 5, waiting: 17, refused: null }],
  load: {
    ...{ load1: 1, memory_available_bytes: 2 ** 30, disk_available_bytes: 2 ** 31, spool_bytes: 77 },
    memory_pressure: { some: 12.5, full: 1 },
  },
});

describe('the metrics', () => {
  it('tell what there is, by image, kind and bound', async () => {
    const lines = (await new Metrics(() => busy).text()).split('\n');
    for (const line of [
      'gymbus_runner_info{runner="host-a",version="0.1.0",accelerator="simulated",state="holding"} 1',
      'gymbus_replicas{image="desk",phase="frozen"} 4',
      'gymbus_replicas{image="desk",phase="gating"} 0',
      'gymbus_replicas_wanted{image="desk",kind="hot"} 3',
      'gymbus_jobs_waiting{image="desk"} 17',
      'gymbus_capacity_replicas{kind="frozen",bound="memory"} 900',
      'gymbus_capacity_replicas{kind="acting",bound="cpu"} 6',
      'gymbus_pull_held{reason="memory"} 1',
      'gymbus_spool_bytes 77',
      'gymbus_memory_available_bytes 1073741824',
      'gymbus_disk_available_bytes 2147483648',
      'gymbus_memory_pressure_ratio{kind="some"} 0.125',
    ]) {
      expect(lines).toContain(line);
    }
  });

  it('count what happens, in seconds', async () => {
    const metrics = new Metrics(() => sampleStatus());
    metrics.cloned('desk', 200);
    metrics.claimed('desk', 30, true);
    metrics.claimed('desk', 61_000, false);
    metrics.built('desk');
    const job = { image: 'desk', end: 'committed', class: null, status: 'completed' };
    metrics.ended(job);
    metrics.ended(job);
    metrics.ended({ ...job, end: 'retrying', class: 'guest', status: null });
    const lines = (await metrics.text()).split('\n');
    for (const line of [
      'gymbus_clone_duration_seconds_sum{image="desk"} 0.2',
      'gymbus_claim_duration_seconds_bucket{le="0.05",image="desk",result="ok"} 1',
      'gymbus_claim_duration_seconds_count{image="desk",result="failed"} 1',
      'gymbus_template_builds_total{image="desk"} 1',
      'gymbus_deliveries_total{image="desk",end="committed",class="none"} 2',
      'gymbus_deliveries_total{image="desk",end="retrying",class="guest"} 1',
      'gymbus_outcomes_total{image="desk",status="completed"} 2',
    ]) {
      expect(lines).toContain(line);
    }
    expect(lines.filter((line) => line.startsWith('gymbus_pull_held{'))).toEqual([]);
  });

  it('are named as they should be', async () => {
    const text = await new Metrics(() => busy).text();
    const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name ?? '');
    expect(names.length).toBeGreaterThan(12);
    for (const name of names) {
      expect(name).toMatch(/^gymbus_[a-z_]+$/);
      expect(name).not.toMatch(/_(ms|mib|gib|percent)$/);
    }
  });
});
