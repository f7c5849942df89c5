import { expect } from 'vitest';
import type { z } from 'zod';
import { readBy } from '../../schemas/index.ts';

/** Zod's own words, for every kind of issue: what no person may be told. */
export const ZODS =
  /Invalid |received |Too (big|small)|Unrecognized|[Ee]xpected (one|string|number|int|boolean|array|object)|received NaN/;
/** The field, then what is allowed and what was received; what is missing or unknown tells the latter by that word. */
const LINE =
  /^\S+: (is missing, must be .+|unknown field ".+; (known are .+|leave it out)|.+ \(got .+\)|names path .+)$|^and \d+ more$/s;

export function expectPlain(lines: readonly string[]): void {
  expect(lines).not.toEqual([]);
  expect(lines.length).toBeLessThanOrEqual(21);
  for (const line of lines) {
    expect(line).toMatch(LINE);
    expect(line).not.toMatch(ZODS);
    expect(line.length).toBeLessThan(700);
  }
}

export function linesOf(schema: z.ZodType, value: unknown): string[] {
  const read = readBy(schema, value, ['it']);
  return read.ok ? [] : read.problems;
}
