import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { timetable } from '../../../runner/job/timetable.ts';
import { Limits } from '../../../schemas/index.ts';

const START = 1_000;

describe('the times of an episode', () => {
  it('leave the evaluation its own limit, where that is no more than a quarter of all', () => {
    const times = timetable(Limits.parse({}), true, START);
    expect(times.setup).toEqual({ ms: 60_000, limit: 'limits.setup_s' });
    expect(times.stepsEndMs).toBe(START + 540_000);
    expect(times.evaluation(START + 540_000)).toEqual({ ms: 60_000, limit: 'limits.evaluate_s' });
    // A little of it was taken by the last picture.
    expect(times.evaluation(START + 541_000)).toEqual({ ms: 59_000, limit: 'limits.total_s' });
  });

  it('leave the steps most of a short total', () => {
    const times = timetable(Limits.parse({ total_s: 20 }), true, START);
    expect(times.setup).toEqual({ ms: 15_000, limit: 'limits.total_s' });
    expect(times.stepsEndMs).toBe(START + 15_000);
    expect(times.evaluation(START + 3_000)).toEqual({ ms: 17_000, limit: 'limits.total_s' });
    expect(times.evaluation(START + 30_000).ms).toBe(0);
  });

  it('keep nothing for an evaluation that there is not', () => {
    expect(timetable(Limits.parse({ total_s: 20 }), false, START)).toMatchObject({
      ...{ setup: { ms: 20_000 }, stepsEndMs: START + 20_000 },
    });
  });

  it('hold together whatever the limits are', () => {
    const seconds = fc.double({ min: 0.001, max: 18_000, noNaN: true });
    const limits = fc.record({ setup_s: seconds, evaluate_s: seconds, total_s: seconds });
    fc.assert(
      fc.property(limits, fc.boolean(), fc.double({ min: 0, max: 1, noNaN: true }), (given, evaluated, used) => {
        const times = timetable(Limits.parse(given), evaluated, START);
        const end = START + given.total_s * 1_000;
        const near = 1e-6 * end;
        expect(times.setup.ms).toBeLessThanOrEqual(given.setup_s * 1_000);
        expect(START + times.setup.ms).toBeLessThanOrEqual(times.stepsEndMs + near);
        // Whenever the steps end in their time, all three end in theirs, and the evaluation has its share.
        const now = START + used * (times.stepsEndMs - START);
        const { ms } = times.evaluation(now);
        expect(ms).toBeLessThanOrEqual(given.evaluate_s * 1_000);
        expect(now + ms).toBeLessThanOrEqual(end + near);
        if (evaluated) {
          expect(ms + near).toBeGreaterThanOrEqual(Math.min(given.evaluate_s, given.total_s / 4) * 1_000);
        }
      }),
    );
  });
});
