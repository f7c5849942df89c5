import { setTimeout as sleep } from 'node:timers/promises';
import type { AttemptHistory, TrajectoryJob } from '../../schemas/index.ts';
import { attemptSuffix, type Begun, beginAttempt } from '../bus/attempts.ts';
import { discard, playAttempt } from './attempt.ts';
import { Cancelled, classify } from './classify.ts';
import { type AttemptContext, afterFailure, conclude, endedAs } from './conclusion.ts';
import { basisOf, committed, type Delivery, type DeliverySummary } from './delivery-context.ts';
import { spentAttempts, verdictOf } from './failure.ts';
import { joinSignals } from './limit.ts';
import type { Player } from './player.ts';
import { unfinished } from './result.ts';
import { settle } from './settlement.ts';

/** A runner that has found the bus again writes within some 3 s what it could not write before. */
const LATE_END_MS = 10_000;
const LATE_LOOK_MS = 1_000;

/** Points 3 to 7 for a job that may be played: claim, write the attempt down, play it, see to its outcome. */
export async function play(delivery: Delivery, job: TrajectoryJob, fence: number): Promise<DeliverySummary> {
  const { player, lease, hold } = delivery;
  const { address } = lease.message;
  using cancelled = watchCancel(player, address.batch);
  using signals = joinSignals(hold, cancelled.signal);
  const claimedAt = performance.now();
  const replica = await delivery.reservation.claim(signals.signal);
  const claimMs = Math.round(performance.now() - claimedAt);

  const suffix = attemptSuffix();
  const begun = await begin(delivery, job, fence, suffix).catch(async (error: unknown) => {
    discard(replica, player.log);
    // It may have been written all the same.
    throw await endedAs(delivery, suffix, classify(error), null);
  });
  if (begun.kind === 'used_up') {
    discard(replica, player.log);
    lease.assertHeld();
    const { status, ...failure } = verdictOf(spentAttempts(begun.history));
    const ending = { attempts: begun.history.attempts.length };
    return committed(await settle(delivery, unfinished(basisOf(delivery, job), ending, status, failure), fence));
  }

  const { attempt } = begun.attempt;
  player.emit('started', address, attempt, { replica: replica.id, deliveries: lease.message.deliveries });
  await using played = await playAttempt({
    ...{ job, address, attempt, replica, body: lease.message.data, persist: delivery.persist, signal: signals.signal },
    ...{ place: player.place, functions: player.functions, look: player.look, downloads: player.downloads },
    emit: (kind, data) => player.emit(kind, address, attempt, data),
    log: player.log,
  }).catch(async (error: unknown) => {
    // Begun and not played: a disk with no room for it, which must cost the job nothing.
    throw await endedAs(delivery, suffix, classify(error), null);
  });
  const context: AttemptContext = {
    delivery,
    job,
    fence,
    replica,
    attempt,
    suffix,
    played,
    claimMs,
    number: begun.history.attempts.length,
  };
  try {
    return played.failure === null ? await conclude(context) : await afterFailure(context, played.failure);
  } catch (error) {
    throw await endedAs(delivery, suffix, classify(error), played);
  }
}

/**
 * Writes the attempt down. When none is left but for some that never ended, it waits a while for their ends: their
 * runners may live, and have lost no more than the bus.
 */
async function begin(delivery: Delivery, job: TrajectoryJob, fence: number, suffix: string): Promise<Begun> {
  const { player, lease, hold, sha256 } = delivery;
  const { batch, job: id } = lease.message.address;
  const usedUp = (history: AttemptHistory): boolean => spentAttempts(history).length >= job.retry.max_attempts;
  const request = { batch, job: id, sha256, fence, runner: player.runner, suffix, usedUp };
  for (const endMs = performance.now() + LATE_END_MS; ; await sleep(LATE_LOOK_MS, undefined, { signal: hold })) {
    const begun = await beginAttempt(player.bus, request, { signal: hold });
    const open = begun.kind === 'used_up' && begun.history.attempts.some((attempt) => attempt.ended_at === null);
    if (!open || performance.now() >= endMs) return begun;
  }
}

function watchCancel({ flags }: Player, batch: string): Disposable & { signal: AbortSignal } {
  const controller = new AbortController();
  const stop = flags.onCancelled(batch, () => controller.abort(new Cancelled(`batch ${batch} was cancelled`)));
  return { signal: controller.signal, [Symbol.dispose]: stop };
}
