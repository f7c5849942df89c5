import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classify } from '../../runner/job/classify.ts';
import { AttemptFailed, FAILURE_TABLE, retryDelayMs, spentAttempts, verdictOf } from '../../runner/job/failure.ts';
import { ReplicaLost } from '../../runner/replica/contract.ts';
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

describe('the attempts that count', () => {
  const spentOf = (attempts: AttemptRecord[]) =>
    spentAttempts({ schema: 'gymbus.attempts.v1', job_sha256: 'a', fence: 0, attempts });

  it.each([...FailureClass.options, null])('of class %s: as the table says', (failureClass) => {
    const costs = failureClass === null || FAILURE_TABLE[failureClass].spends;
    expect(spentOf([attempt({ class: failureClass })])).toHaveLength(costs ? 1 : 0);
  });

  it('are those that never ended, too: their runners died', () => {
    expect(spentOf([attempt({ ended_at: null, class: null })])).toHaveLength(1);
  });

  it('keep their order, and are never more than there are', () => {
    const attempts = fc.array(
      fc.record({ class: fc.constantFrom(null, ...FailureClass.options), ended: fc.boolean(), n: fc.integer() }),
    );
    fc.assert(
      fc.property(attempts, (made) => {
        const records = made.map(({ class: failureClass, ended, n }) =>
          attempt({ class: failureClass, ended_at: ended ? '2026-01-02T03:04:06.678Z' : null, attempt: String(n) }),
        );
        const spent = spentOf(records);
        expect(records.filter((one) => spent.includes(one))).toEqual(spent);
        for (const one of records) if (one.ended_at === null) expect(spent).toContain(one);
      }),
    );
  });
});

describe('the message of a failure', () => {
  it('is cut to what fits everywhere it goes', () => {
    expect(new AttemptFailed('setup', 'x'.repeat(3e6)).message).toHaveLength(2_000);
    expect(new AttemptFailed('setup', 'short').message).toBe('short');
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

  it('is no poison when a fault was found in the guest of each', () => {
    const lost = classify(new ReplicaLost('the X server ended', { found: true }));
    const spent = [1, 2].map(() =>
      attempt({ class: lost.class, message: lost.message, replica_lost: lost.replicaLost }),
    );
    expect(verdictOf(spent)).toEqual({ status: 'failed', class: 'guest', message: 'the X server ended' });
  });

  it('is no poison when one attempt failed in an ordinary way, though the last runner died', () => {
    const spent = [attempt({ class: 'evaluator', message: 'why' }), attempt({ ended_at: null, class: null })];
    expect(verdictOf(spent)).toMatchObject({ status: 'failed', class: 'evaluator', message: 'why' });
  });
});
