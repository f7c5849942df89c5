import { createHash } from 'node:crypto';
import { checkJob } from '../../functions/check-job.ts';
import { HEADERS } from '../../schemas/index.ts';
import type { TakenJob } from '../bus/batches.ts';
import { DELIVER_LIMIT_MS, holdLease } from '../bus/lease.ts';
import { type Outcome, readOutcome, UnreadableOutcome } from '../bus/outcomes.ts';
import type { Reservation } from '../replica/contract.ts';
import { type Admission, admit } from './admission.ts';
import { classify, Drained } from './classify.ts';
import { basisOf, committed, type Delivery, type DeliverySummary } from './delivery-context.ts';
import { type AttemptFailed, retryDelayMs } from './failure.ts';
import { joinSignals } from './limit.ts';
import { causesOf } from './part-failed.ts';
import { play } from './play.ts';
import type { Player } from './player.ts';
import { unfinished } from './result.ts';
import { afterCommit, refuse, settle } from './settlement.ts';

/** A job for a later gymbus: one of its runners will find it within this time. */
const NEWER_DELAY_MS = 30_000;
/** A runner that leaves tells a bus that does not answer for so long that it gives a job back; then ack_wait does. */
const LEAVING_MS = 2_000;

/**
 * Sees one delivered job to its end, by the law of delivery. Never throws: whatever goes wrong leaves the job in the
 * queue, where another delivery finds it.
 * @param reservation a ready replica, held since before the bus was asked; used or released here
 * @param stop aborted when the runner's time for jobs under way is over
 */
export async function deliver(
  player: Player,
  taken: TakenJob,
  reservation: Reservation,
  stop: AbortSignal,
): Promise<DeliverySummary> {
  using lease = holdLease(player.bus, taken.message, { ackWaitMs: taken.ackWaitMs });
  using hold = joinSignals(lease.held, stop);
  using persist = joinSignals(stop, AbortSignal.timeout(DELIVER_LIMIT_MS));
  const delivery: Delivery = {
    player,
    lease,
    reservation,
    hold: hold.signal,
    persist: persist.signal,
    sha256: createHash('sha256').update(taken.message.data).digest('hex'),
    startedAt: new Date(),
  };
  try {
    return await run(delivery);
  } catch (error) {
    return await giveBack(delivery, classify(error));
  } finally {
    reservation.release();
  }
}

async function run(delivery: Delivery): Promise<DeliverySummary> {
  const { player, lease } = delivery;
  const admission = await examine(delivery);
  switch (admission.kind) {
    case 'settled':
      return { end: 'already_done', result: await afterCommit(delivery, admission.outcome) };
    case 'refused':
      await refuse(delivery, admission.class, admission.message);
      return { end: 'refused', failure: admission };
    case 'newer':
      player.log.warn({ version: admission.version }, 'job is for a later gymbus; given back for a newer runner');
      player.emit('retrying', lease.message.address, null, { reason: `needs ${admission.version}` });
      await lease.nak(NEWER_DELAY_MS);
      return { end: 'returned', failure: { class: 'host', message: `needs ${admission.version}` } };
    case 'dead':
    case 'cancelled': {
      const failure =
        admission.kind === 'dead'
          ? { class: admission.class, message: admission.message }
          : { class: 'cancelled' as const, message: 'the batch is cancelled' };
      const basis = basisOf(delivery, admission.kind === 'cancelled' ? admission.job : null);
      return committed(
        await settle(delivery, unfinished(basis, { attempts: 0 }, admission.kind, failure), admission.fence),
      );
    }
    case 'play':
      return await play(delivery, admission.job, admission.fence);
  }
}

/** Point 2: what the message is, before the guest is touched. */
async function examine({ player, lease, hold, sha256 }: Delivery): Promise<Admission> {
  const { address, data, headers, headersProblem, deliveries } = lease.message;
  const { batch, job } = address;
  const patience = { signal: hold };
  let outcome: Outcome | null;
  try {
    outcome = await readOutcome(player.bus, batch, job, patience);
  } catch (error) {
    if (!(error instanceof UnreadableOutcome)) throw error;
    // Whoever wrote it: it is not ours to replace, and no outcome of this job can be committed while it stands.
    return { kind: 'refused', class: 'job_id_reused', message: error.message };
  }
  const batchCancelled = await player.flags.isCancelled(batch, patience);
  const supersedes = headers?.has(HEADERS.supersedes) ? headers.get(HEADERS.supersedes) : null;
  const delivered = { address, body: data, sha256, supersedes, headersProblem, deliveries, outcome, batchCancelled };
  return admit(delivered, (candidate) => checkJob(candidate, player.functions, player.allowedHosts(candidate.image)));
}

/** The job stays in the queue: this host, its storage or its hold on the job failed, none of which is the job's fault. */
async function giveBack({ player, lease }: Delivery, failure: AttemptFailed): Promise<DeliverySummary> {
  if (lease.held.aborted) return { end: 'lost', failure };
  const drained = [...causesOf(failure)].some((cause) => cause instanceof Drained);
  const delayMs = drained ? 0 : retryDelayMs(lease.message.deliveries);
  player.emit('retrying', lease.message.address, null, {
    class: failure.class,
    message: failure.message,
    delay_ms: delayMs,
  });
  await lease.nak(delayMs, drained ? LEAVING_MS : undefined);
  return { end: 'returned', failure };
}
