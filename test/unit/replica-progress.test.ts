import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { progressFraction } from '../../runner/replica/build-progress.ts';

const ORDER = ['waiting', 'copying', 'booting', 'desktop', 'warming', 'settling', 'saving', 'done'] as const;

describe('progress of a template', () => {
  it('begins at 0 and ends at 1', () => {
    expect(progressFraction('waiting', 60_000)).toBe(0);
    expect(progressFraction('copying', 0)).toBe(0);
    expect(progressFraction('done', 0)).toBe(1);
  });

  it('never goes back, however long each phase takes', () => {
    const times = fc.array(fc.integer({ min: 0, max: 600_000 }), { minLength: 8, maxLength: 8 });
    fc.assert(
      fc.property(times, (elapsed) => {
        const seen = ORDER.flatMap((phase, index) => {
          const ms = elapsed[index] ?? 0;
          return [progressFraction(phase, 0), progressFraction(phase, ms / 2), progressFraction(phase, ms)];
        });
        return seen.every((value, index) => value <= 1 && value >= (seen[index - 1] ?? 0));
      }),
    );
  });
});
