import { describe, expect, it } from 'vitest';
import { admit, type Delivered, MAX_DELIVERIES } from '../../runner/job/admission.ts';
import type { Result } from '../../schemas/index.ts';

const body = {
  schema: 'gymbus.job.v1',
  batch_id: 'b1',
  job_id: 'j1',
  image: 'debian-desktop',
  instruction: 'Do it.',
  policy: { name: 'scripted', params: { actions: [] } },
};
const sha = 'a'.repeat(64);
const outcomeOf = (job_sha256: string) => ({ job_sha256, status: 'completed', attempt: '1-abcdefgh' }) as Result;

function delivered(change: Partial<Delivered> = {}, job: object = body): Delivered {
  return {
    address: { image: 'debian-desktop', batch: 'b1', job: 'j1' },
    body: new TextEncoder().encode(JSON.stringify(job)),
    sha256: sha,
    supersedes: null,
    headersProblem: null,
    deliveries: 1,
    outcome: null,
    batchCancelled: false,
    ...change,
  };
}
const fine = () => [];

describe('admission of a delivered message', () => {
  it('plays a sound job behind fence 0', () => {
    expect(admit(delivered(), fine)).toMatchObject({
      kind: 'play',
      fence: 0,
      job: { job_id: 'j1', limits: { max_steps: 15 } },
    });
  });

  it('settles again what has an outcome of the same body, before looking at anything else', () => {
    const outcome = { seq: 7, result: outcomeOf(sha) };
    expect(admit(delivered({ outcome, batchCancelled: true, deliveries: 999 }), fine).kind).toBe('settled');
  });

  it('refuses another body under an id that is done', () => {
    const admission = admit(delivered({ outcome: { seq: 7, result: outcomeOf('b'.repeat(64)) } }), fine);
    expect(admission).toMatchObject({ kind: 'refused', class: 'job_id_reused' });
  });

  it('plays a retry behind the fence it names, and settles it once that is superseded', () => {
    const outcome = { seq: 7, result: outcomeOf(sha) };
    expect(admit(delivered({ outcome, supersedes: '7' }), fine)).toMatchObject({ kind: 'play', fence: 7 });
    expect(admit(delivered({ outcome: { ...outcome, seq: 9 }, supersedes: '7' }), fine).kind).toBe('settled');
  });

  it.each(['0', '-1', 'seven', '7.5', ''])('calls a fence of %j a malformed job', (supersedes) => {
    expect(admit(delivered({ supersedes }), fine)).toMatchObject({ kind: 'dead', class: 'invalid_job' });
  });

  it('calls a fence without an outcome a malformed job', () => {
    expect(admit(delivered({ supersedes: '7' }), fine)).toMatchObject({ kind: 'dead', fence: 0, class: 'invalid_job' });
  });

  it.each([
    ['image', { image: 'other' }],
    ['batch_id', { batch_id: 'other' }],
    ['job_id', { job_id: 'other' }],
  ])('names %s where body and subject disagree', (field, change) => {
    const admission = admit(delivered({}, { ...body, ...change }), fine);
    expect(admission).toMatchObject({ kind: 'dead', class: 'invalid_job' });
    expect(admission.kind === 'dead' && admission.message).toContain(`${field} is "other"`);
  });

  it('only dead-letters a subject that is no identity', () => {
    const admission = admit(delivered({ address: { image: 'debian-desktop', batch: 'b1', job: 'jö' } }), fine);
    expect(admission).toMatchObject({ kind: 'refused', class: 'invalid_job' });
  });

  it('gives a newer job back and does not call it wrong', () => {
    expect(admit(delivered({}, { ...body, schema: 'gymbus.job.v1.1', later: 1 }), fine)).toEqual({
      kind: 'newer',
      version: 'gymbus.job.v1.1',
    });
  });

  it('cancels before it checks functions, and checks functions before it plays', () => {
    const check = () => ['policy.name: unknown policy "nope"'];
    expect(admit(delivered({ batchCancelled: true }), check).kind).toBe('cancelled');
    expect(admit(delivered(), check)).toMatchObject({ kind: 'dead', class: 'invalid_job', message: check()[0] });
  });

  it('bounds runaways', () => {
    expect(admit(delivered({ deliveries: MAX_DELIVERIES }), fine).kind).toBe('play');
    expect(admit(delivered({ deliveries: MAX_DELIVERIES + 1 }), fine)).toMatchObject({ kind: 'dead', class: 'poison' });
  });
});
