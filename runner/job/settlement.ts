import type { JobAddress, Result } from '../../schemas/index.ts';
import { putDeadLetter } from '../bus/dead-letters.ts';
import { commitOutcome, type Outcome, readOutcome } from '../bus/outcomes.ts';
import { putResult } from '../storage/result.ts';
import type { Delivery } from './delivery-context.ts';

/**
 * Commits an outcome and does all that follows: points 5 and 6 of the law of delivery.
 * @returns the outcome that stands: ours, or the one that was first
 */
export async function settle(delivery: Delivery, result: Result, fence: number): Promise<Result> {
  const { player, lease, persist } = delivery;
  const commit = await commitOutcome(player.bus, result, fence, { signal: persist });
  if (commit.won) {
    const kind = result.status === 'dead' ? 'dead' : result.status === 'cancelled' ? 'cancelled' : 'committed';
    const { status, score, valid, steps } = result;
    player.emit(kind, lease.message.address, result.attempt, { status, score, valid, steps, seq: commit.seq });
  } else {
    player.log.warn(
      { batch: result.batch_id, job: result.job_id, attempt: result.attempt, standing: commit.by.attempt },
      'commit refused: another outcome was first',
    );
  }
  return await afterCommit(delivery, { seq: commit.seq, result: commit.won ? result : commit.by });
}

/**
 * `result.json`, the dead letter of a dead job, the acknowledgement: idempotent, and redone by whoever finds the outcome.
 * @returns the outcome that stands
 */
export async function afterCommit(delivery: Delivery, outcome: Outcome): Promise<Result> {
  const standing = await copyStanding(delivery, outcome);
  if (standing.status === 'dead') {
    const { class: failureClass = 'invalid_job', message = 'no reason was recorded' } = standing.failure ?? {};
    await deadLetter(delivery, failureClass, message, standing.attempts);
  }
  await acknowledge(delivery);
  return standing;
}

/**
 * While the job is ours its outcome cannot be superseded, for its message is in the queue, and the queue takes no second
 * one. A holder that was late may have put an older copy over a newer: it looks again.
 */
async function copyStanding({ player, lease, persist }: Delivery, outcome: Outcome): Promise<Result> {
  const { batch, job } = lease.message.address;
  for (let standing = outcome; ; ) {
    await putResult(player.place.store, standing.result, { signal: persist, patienceMs: Number.POSITIVE_INFINITY });
    if (lease.isHeld()) return standing.result;
    const latest = await readOutcome(player.bus, batch, job, { signal: persist });
    if (latest === null || latest.seq === standing.seq) return standing.result;
    standing = latest;
  }
}

/** Keeps a message that can have no outcome of its own, and takes it off the queue. */
export async function refuse(delivery: Delivery, failureClass: string, message: string): Promise<void> {
  const { player, lease } = delivery;
  await deadLetter(delivery, failureClass, message, 0);
  player.emit('dead', lease.message.address, null, { class: failureClass, message });
  await acknowledge(delivery);
}

async function deadLetter(
  { player, lease, persist }: Delivery,
  failureClass: string,
  reason: string,
  attempts: number,
): Promise<void> {
  const { message } = lease;
  await putDeadLetter(player.bus, message, { class: failureClass, reason, attempts }, { signal: persist });
}

async function acknowledge({ player, lease }: Delivery): Promise<void> {
  const settled = await lease.ack();
  // Not confirmed: the job comes again, its outcome is found, and this is redone.
  if (settled !== 'confirmed') player.log.warn({ ...named(lease.message.address), settled }, 'job not acknowledged');
}

function named({ batch, job }: JobAddress): { batch: string; job: string } {
  return { batch, job };
}
