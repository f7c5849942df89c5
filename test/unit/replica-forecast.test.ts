import { describe, expect, it } from 'vitest';
import { capacityReport, reportText } from '../../runner/cli/capacity-report.ts';
import { parseHostSpec } from '../../runner/host/host-spec.ts';
import { forecast } from '../../runner/replica/forecast.ts';
import { basisOf, type KnownImage } from '../../runner/replica/host-forecast.ts';
import { emptyProfile, mergeSamples } from '../../runner/replica/profile.ts';

const [mib, gib] = [2 ** 20, 2 ** 30];
const many = (value: number): number[] => Array.from({ length: 16 }, () => value);
const profile = mergeSamples(
  emptyProfile({ image: 'desk', image_digest: 'd', accelerator: 'tcg', memory_mib: 1_024 }),
  {
    ...{ frozen_bytes: many(16 * mib), hot_bytes: many(80 * mib), idle_bytes: many(90 * mib), clone_ms: many(100) },
    ...{ acting_bytes: many(200 * mib), acting_cpu: many(0.05), step_cpu_ms: many(50), idle_cpu: many(0.01) },
    episode_disk_bytes: many(20 * mib),
  },
);
const images: KnownImage[] = [{ image: 'desk', digest: 'd', template: 'k', profile }];
const basis = basisOf(images, 3 * gib);

function planned(text: string) {
  const spec = parseHostSpec(text);
  const room = { ...spec, cpus: spec.cores, openFiles: Number.POSITIVE_INFINITY };
  const plan = forecast(basis, room, { diskFloorBytes: 2 * gib }, spec.usdPerDay);
  return capacityReport({ spec, room, usdPerDay: spec.usdPerDay, basis, images, plan, runners: null });
}

describe('another machine', () => {
  it('is planned from what was measured here, with what one acting replica costs there', () => {
    const report = planned('cores=88,memory=768G,disk=4T,numa=2,usd_per_day=235,accel=tcg');
    expect(report.replicas).toEqual({ frozen: 49_088, hot: 9_816, acting: 1_760 });
    expect(report.bound).toEqual({ frozen: 'memory', hot: 'memory', acting: 'cpu' });
    expect(report.usd_per_replica_day).toBeCloseTo(235 / 1_760);
    // 0.05 of a processor each, 50 ms a step.
    expect(report.steps_per_second).toBe(1_760);
    expect(report.note).toBeNull();
    expect(report.unshared).toEqual({ replicas: 88, bound: 'cpu', hosts: 20, usd_per_replica_day: 235 / 88 });
    expect(report.saving_percent).toBe(95);
  });

  it('without sharing is bound by full disks where there are few of them', () => {
    const report = planned('cores=88,memory=768G,disk=100G');
    expect(report.unshared).toMatchObject({ bound: 'disk', replicas: Math.floor(98 / (3 + 20 / 1_024)) });
    expect([report.usd_per_replica_day, report.unshared.usd_per_replica_day]).toEqual([null, null]);
    expect(reportText(report)).toContain('unknown price');
  });

  it('is labelled where it is accelerated by something else', () => {
    const report = planned('cores=8,memory=64G,disk=1T,accel=kvm');
    expect(report.note).toBe('measured under tcg; kvm is another');
    expect(reportText(report)).toContain('note: measured under tcg');
    expect(planned('cores=8,memory=64G,disk=1T').note).toMatch(/^measured under tcg/);
  });
});

describe('this host', () => {
  it('is shown with what there is now, and says what is only assumed', () => {
    const none = basisOf([{ ...(images[0] as KnownImage), profile: { ...profile, figures: {} } }], 3 * gib);
    const room = { memoryBytes: 8 * gib, cpus: 2, diskBytes: 90 * gib, numaNodes: 1, openFiles: 4_096 };
    const entry = {
      at: 0,
      askedAt: 0,
      wantsBytes: 0,
      devices: [],
      milliCpus: 0,
      memoryBytes: 0,
      residentBytes: 0,
      diskBytes: 0,
    };
    const runners = [
      { ...entry, runner: 'a', pid: 7, acting: 2, frozen: 3, hot: 1, waitingSince: null },
      { ...entry, runner: 'b', pid: 8, acting: 1, frozen: 0, hot: 4, waitingSince: 5 },
    ];
    const plan = forecast(none, room, { diskFloorBytes: 0, acting: 4 }, 12);
    const report = capacityReport({ spec: null, room, usdPerDay: 12, basis: none, images, plan, runners });
    expect(report.now).toEqual({ frozen: 3, hot: 5, acting: 3 });
    expect(report.bound.acting).toBe('setting');
    expect(report.usd_per_replica_day).toBe(3);
    expect(report.note).toBe('some figures are assumed: replicas that run here will tell');
    expect(reportText(report)).toContain('runner b (pid 8): 0 frozen, 4 hot, 1 acting, waits for a place');
  });
});
