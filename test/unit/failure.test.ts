import { describe, expect, it } from 'vitest';
import { FAILURE_TABLE, retryDelayMs, verdictOf } from '../../runner/job/failure.ts';
import { type AttemptRecord, FailureClass } from '../../schemas/index.ts';

function attempt(change: Partial<AttemptRecord>): AttemptRecord {
  return {
    attempt: '1-abcdefgh',
    runner: 'host-a',
    started_at: '2026-01-01T00:00:00.000Z',
    ended_at: '2026-01-01T00:01:00.000Z',
    class: 'setup',
    message: 'mkdir timed out',
    replica_lost: false,
    ...change,
  };
}

describe('the failure table', () => {
  it('has a line for every class', () => {
    expect(Object.keys(FAILURE_TABLE).sort()).toEqual([...FailureClass.options].sort());
  });

  it('never lets a host or storage failure cost an attempt', () => {
    expect([FAILURE_TABLE.host, FAILURE_TABLE.storage].every((line) => !line.spends && line.next === 'return')).toBe(
      true,
    );
  });
});

describe('the delay of a retry', () => {
  it('grows, and stays within a minute and its jitter', () => {
    const delays = Array.from({ length: 20 }, (_, i) => retryDelayMs(i + 1, () => 0));
    expect(delays.every((delay, i) => i === 0 || delay >= (delays[i - 1] ?? 0))).toBe(true);
    expect(delays[0]).toBe(1_000);
    expect(retryDelayMs(50, () => 1)).toBe(75_000);
  });
});

describe('a job whose attempts are used up', () => {
  it('fails with the class of its last attempt', () => {
    expect(verdictOf([attempt({ class: 'guest' }), attempt({ class: 'setup', message: 'no' })])).toEqual({
      status: 'failed',
      class: 'setup',
      message: 'no',
    });
  });

  it('is poison when every attempt took its runner or replica down', () => {
    const spent = [attempt({ ended_at: null, class: null }), attempt({ class: 'guest', replica_lost: true })];
    expect(verdictOf(spent)).toMatchObject({ status: 'dead', class: 'poison' });
  });

  it('is no poison when one attempt failed in an ordinary way, though the last runner died', () => {
    const spent = [attempt({ class: 'evaluator', message: 'why' }), attempt({ ended_at: null, class: null })];
    expect(verdictOf(spent)).toMatchObject({ status: 'failed', class: 'evaluator', message: 'why' });
  });
});
