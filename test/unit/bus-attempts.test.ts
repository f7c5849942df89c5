import fc from 'fast-check';
import { expect, it } from 'vitest';
import { spentAttempts } from '../../runner/bus/attempts.ts';
import { type AttemptHistory, type AttemptRecord, FailureClass } from '../../schemas/index.ts';

const record = (over: Partial<AttemptRecord>): AttemptRecord => ({
  attempt: '1-abcdefgh',
  runner: 'host-a',
  started_at: '2026-01-02T03:04:05.678Z',
  ended_at: '2026-01-02T03:04:06.678Z',
  class: 'guest',
  message: null,
  replica_lost: false,
  ...over,
});
const history = (attempts: AttemptRecord[]): AttemptHistory => ({
  schema: 'gymbus.attempts.v1',
  job_sha256: 'a',
  fence: 3,
  attempts,
});

it.each([
  ['guest', 1],
  ['setup', 1],
  ['policy', 1],
  ['evaluator', 1],
  ['host', 0],
  ['storage', 0],
  ['cancelled', 0],
  [null, 1],
] as const)('an ended attempt of class %s costs %i', (failureClass, cost) => {
  expect(spentAttempts(history([record({ class: failureClass })]), 3, 'a')).toHaveLength(cost);
});

it('counts an attempt that never ended: its runner died', () => {
  expect(spentAttempts(history([record({ ended_at: null, class: null })]), 3, 'a')).toHaveLength(1);
});

it('counts nothing of another run, another body, or none', () => {
  const spent = history([record({})]);
  expect(spentAttempts(spent, 0, 'a')).toEqual([]);
  expect(spentAttempts(spent, 3, 'b')).toEqual([]);
  expect(spentAttempts(null, 0, 'a')).toEqual([]);
});

it('keeps the order, and never counts more than there are', () => {
  const attempts = fc.array(
    fc.record({ class: fc.constantFrom(null, ...FailureClass.options), ended: fc.boolean(), n: fc.integer() }),
  );
  fc.assert(
    fc.property(attempts, (made) => {
      const records = made.map(({ class: failureClass, ended, n }) =>
        record({ class: failureClass, ended_at: ended ? '2026-01-02T03:04:06.678Z' : null, attempt: String(n) }),
      );
      const spent = spentAttempts(history(records), 3, 'a');
      expect(records.filter((one) => spent.includes(one))).toEqual(spent);
      for (const one of records) if (one.ended_at === null) expect(spent).toContain(one);
    }),
  );
});
