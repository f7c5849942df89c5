import { describe, expect, it } from 'vitest';
import { servingWarnings, whyWaiting } from '../../../runner/cli/serving.ts';
import type { RunnerStatus } from '../../../schemas/index.ts';
import { sampleStatus } from '../../support/samples.ts';

const runner = (id: string, image: string, over: Partial<RunnerStatus> = {}) =>
  sampleStatus({ runner: id, state: 'running', reason: null, images: [{ name: image, digest: 'd' }], ...over });
const held = { state: 'holding', reason: 'disk: 1.2 GiB free' } as const;

describe('why jobs of an image wait', () => {
  it.each([
    ['no runner is live', [], 'no live runner serves a'],
    ['none serves it', [runner('1', 'b')], 'no live runner serves a'],
    ['the only one does not pull', [runner('1', 'a', held)], 'runner 1 is holding: disk: 1.2 GiB free'],
    ['one of two pulls', [runner('1', 'a', held), runner('2', 'a')], null],
  ])('%s', (_what, runners, said) => expect(whyWaiting('a', runners)).toBe(said));
});

describe('who publishes is warned', () => {
  it('of each image that is not taken, by name, and of what is', () => {
    expect(servingWarnings(['a', 'b', 'c'], [runner('1', 'b'), runner('2', 'd'), runner('3', 'b')])).toEqual([
      'no live runner serves a (live runners serve b, d): the jobs for a wait until one takes them',
      'no live runner serves c (live runners serve b, d): the jobs for c wait until one takes them',
    ]);
    expect(servingWarnings(['a'], [])).toEqual([
      'no live runner serves a (no runner is live): the jobs for a wait until one takes them',
    ]);
  });

  it('of the reason, where one serves it and does not pull', () =>
    expect(servingWarnings(['a'], [runner('1', 'a', held)])).toEqual([
      'runner 1 is holding: disk: 1.2 GiB free: the jobs for a wait until one takes them',
    ]));

  it('of nothing where all are taken', () => expect(servingWarnings(['a'], [runner('1', 'a')])).toEqual([]));
});
