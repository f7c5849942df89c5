import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { playEpisode } from '../../runner/job/episode.ts';
import { LOOK_DEFAULTS } from '../../runner/job/observe.ts';
import { TrajectoryJob } from '../../schemas/index.ts';
import { available } from '../support/requirement.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

/*
 * Where a guest really boots under KVM the whole virtual machine suite runs under it; this smoke suite says so, and is
 * named among the skipped where it could not run: the KVM path is then not exercised.
 */
describe.skipIf(!available('kvm'))('under KVM', () => {
  let vm: Fixture;
  beforeAll(async () => {
    vm = await openFixture('test-kvm');
  });
  afterAll(() => vm?.[Symbol.asyncDispose]());

  it('boots a template, clones it, passes the gate and plays an episode', async () => {
    expect(vm.template.hardware.accelerator).toBe('kvm');
    const replica = await vm.replica('leased');
    const job = TrajectoryJob.parse({
      ...{ schema: 'gymbus.job.v1', batch_id: 'kvm', job_id: 'smoke', image: 'debian-desktop', instruction: 'Click.' },
      setup: [{ type: 'execute', parameters: { command: ['mkdir', '/home/user/Desktop/todo'] } }],
      policy: { name: 'scripted', params: { actions: [{ type: 'click', x: 640, y: 360, button: 'right' }] } },
      evaluator: {
        func: 'exact_match',
        result: { type: 'vm_command_line', command: ['ls', '/home/user/Desktop'] },
        expected: { type: 'rule', rules: { expected: 'todo\n' } },
      },
    });
    const pictures: string[] = [];
    const end = await playEpisode({
      ...{ job, attempt: '1-kvmsmoke', replica, signal: never },
      context: {
        ...{ job, screen: replica.guest.screen, bucket: 'none', downloads: { maxBytes: 0, allowPrivate: false } },
        readInput: () => Promise.reject(new Error('this job has no inputs')),
      },
      recorder: {
        screenshot: async (step, png) => {
          const sha256 = createHash('sha256').update(png).digest('hex');
          pictures.push(sha256);
          return { key: `step-${step}`, bytes: png.byteLength, sha256, ...replica.guest.screen };
        },
        step: async () => undefined,
        setup: async () => undefined,
        event: () => undefined,
      },
      look: { ...LOOK_DEFAULTS, settle: { minMs: 200, maxMs: 2_000 } },
    });
    expect(end.score).toBe(1);
    expect(new Set(pictures).size).toBe(2);
  });
});
