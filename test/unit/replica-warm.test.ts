import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FROZEN_IDLE_MS,
  HOT_IDLE_MS,
  type ImageDemand,
  type WarmBudget,
  warmTargets,
} from '../../runner/replica/warm-targets.ts';

const [mib, gib] = [2 ** 20, 2 ** 30];
const image = (name: string, over: Partial<ImageDemand> = {}): ImageDemand => ({
  ...{ name, hotBytes: 80 * mib, frozenBytes: 16 * mib, waiting: 0, claims: 0, idleMs: 0 },
  ...over,
});
const budget: WarmBudget = { memoryBytes: 100 * gib, hot: 6, frozen: 6, keep: 1 };
const aim = (images: ImageDemand[], over: Partial<WarmBudget> = {}) =>
  Object.fromEntries(warmTargets(images, { ...budget, ...over }));

describe('how many replicas are kept warm', () => {
  it('is as many as may act, of the one image there is', () => {
    expect(aim([image('a')])).toEqual({ a: { hot: 6, frozen: 6 } });
  });

  it('follows demand where there are several', () => {
    const [a, b] = [image('a', { waiting: 100 }), image('b', { idleMs: 1_000 })];
    expect(aim([a, b])).toEqual({ a: { hot: 6, frozen: 6 }, b: { hot: 0, frozen: 1 } });
    expect(aim([image('a', { claims: 9 }), image('b', { claims: 9 })])).toMatchObject({ a: { hot: 3 }, b: { hot: 3 } });
    // However much waits for another.
    expect(aim([image('a', { waiting: 9_999 }), image('b', { waiting: 1 })]).b?.hot).toBe(1);
  });

  it('sinks when an image is not asked for: hot ones first, then frozen ones to the last', () => {
    const idle = (idleMs: number) => aim([image('a', { idleMs })]).a;
    expect(idle(HOT_IDLE_MS - 1)).toEqual({ hot: 6, frozen: 6 });
    expect(idle(HOT_IDLE_MS)).toEqual({ hot: 0, frozen: 2 });
    expect(idle(FROZEN_IDLE_MS)).toEqual({ hot: 0, frozen: 1 });
  });

  it('is what a setting says, asked for or not', () => {
    const set = { setHot: 2, setFrozen: 0 };
    expect(aim([image('a', { idleMs: FROZEN_IDLE_MS }), image('b', { waiting: 5 })], set)).toEqual({
      ...{ a: { hot: 2, frozen: 0 }, b: { hot: 2, frozen: 0 } },
    });
    expect(aim([image('a')], { setFrozen: 1_024 }).a).toEqual({ hot: 6, frozen: 1_024 });
  });

  it('gives up hot ones before frozen ones, those of images without jobs first, and keeps one of each', () => {
    const images = [image('idle'), image('busy', { waiting: 4 })];
    const at = (mebibytes: number) => aim(images, { setHot: 2, setFrozen: 3, memoryBytes: mebibytes * mib });
    expect(at(16 * 6 + 80 * 4)).toEqual({ busy: { hot: 2, frozen: 3 }, idle: { hot: 2, frozen: 3 } });
    expect(at(16 * 6 + 80 * 2)).toEqual({ busy: { hot: 2, frozen: 3 }, idle: { hot: 0, frozen: 3 } });
    expect(at(16 * 6 + 80)).toEqual({ busy: { hot: 1, frozen: 3 }, idle: { hot: 0, frozen: 3 } });
    expect(at(16 * 4)).toEqual({ busy: { hot: 0, frozen: 3 }, idle: { hot: 0, frozen: 1 } });
    expect(at(16 * 2)).toEqual({ busy: { hot: 0, frozen: 1 }, idle: { hot: 0, frozen: 1 } });
    expect(at(16)).toEqual({ busy: { hot: 0, frozen: 1 }, idle: { hot: 0, frozen: 0 } });
    expect(aim(images, { keep: 0 })).toEqual({ busy: { hot: 0, frozen: 1 }, idle: { hot: 0, frozen: 1 } });
  });

  it('is never above the budget, and at least one of each image with jobs waiting that fits', () => {
    const demand = fc.record({
      hotBytes: fc.integer({ min: 20, max: 200 }).map((n) => n * mib),
      frozenBytes: fc.integer({ min: 5, max: 20 }).map((n) => n * mib),
      waiting: fc.constantFrom(0, 0, 1, 7, 5_000),
      claims: fc.integer({ min: 0, max: 50 }),
      idleMs: fc.constantFrom(0, 1_000, HOT_IDLE_MS, FROZEN_IDLE_MS),
    });
    const setting = fc.option(fc.integer({ min: 0, max: 50 }), { nil: undefined });
    const limits = fc.record({
      memoryBytes: fc.integer({ min: 0, max: 4_000 }).map((n) => n * mib),
      ...{ hot: fc.integer({ min: 0, max: 60 }), frozen: fc.integer({ min: 0, max: 60 }) },
      ...{ keep: fc.constantFrom(0, 0.25, 0.5, 1), setHot: setting, setFrozen: setting },
    });
    fc.assert(
      fc.property(fc.array(demand, { minLength: 1, maxLength: 6 }), limits, (demands, given) => {
        const images = demands.map((one, index) => image(`image-${index}`, one));
        const targets = warmTargets(images, given);
        const of = ({ name }: ImageDemand) => targets.get(name) ?? { hot: 0, frozen: 0 };
        const sum = images.reduce((all, one) => all + of(one).hot * one.hotBytes + of(one).frozen * one.frozenBytes, 0);
        expect(sum).toBeLessThanOrEqual(given.memoryBytes);
        const waiting = images.filter((one) => one.waiting > 0);
        const one = waiting.reduce((all, { frozenBytes }) => all + frozenBytes, 0);
        if (one > given.memoryBytes) return;
        for (const asked of waiting) expect(of(asked).hot + of(asked).frozen, asked.name).toBeGreaterThan(0);
      }),
    );
  });
});
