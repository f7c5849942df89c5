import { createHash } from 'node:crypto';
import { checkJob } from '../../functions/check-job.ts';
import { HEADERS, type Result, type TrajectoryJob } from '../../schemas/index.ts';
import { beginAttempt, endAttempt, spentAttempts } from '../bus/attempts.ts';
import type { TakenJob } from '../bus/batches.ts';
import { holdLease, type Lease } from '../bus/lease.ts';
import { readOutcome } from '../bus/outcomes.ts';
import type { Replica, Reservation } from '../replica/contract.ts';
import { type Admission, admit } from './admission.ts';
import { type PlayedAttempt, playAttempt } from './attempt.ts';
import { classify } from './classify.ts';
import { type AttemptFailed, FAILURE_TABLE, retryDelayMs, verdictOf } from './failure.ts';
import { joinSignals } from './limit.ts';
import type { Player } from './player.ts';
import { type AttemptBasis, completed, type EpisodeBasis, type OutcomeBasis, unfinished } from './result.ts';
import { afterCommit, refuse, settle } from './settlement.ts';

/** A job for a later gymbus: one of its runners will find it within this time. */
const NEWER_DELAY_MS = 30_000;
/** What a failed attempt recorded is worth this much waiting before the job goes to somebody else. */
const LEAVE_MS = 5_000;

/** How a delivery ended, for the log's one wide line a job. */
export interface DeliverySummary {
  end: 'committed' | 'already_done' | 'refused' | 'retrying' | 'returned' | 'lost';
  result?: Result;
  failure?: { class: string; message: string };
}

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
  const delivery: Delivery = {
    player,
    lease,
    reservation,
    stop,
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

interface Delivery {
  player: Player;
  lease: Lease;
  reservation: Reservation;
  stop: AbortSignal;
  sha256: string;
  startedAt: Date;
}

async function run(delivery: Delivery): Promise<DeliverySummary> {
  const { player, lease } = delivery;
  const admission = await examine(delivery);
  switch (admission.kind) {
    case 'settled':
      await afterCommit(player, lease, admission.result);
      return { end: 'already_done', result: admission.result };
    case 'refused':
      await refuse(player, lease, admission.class, admission.message);
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
        await settle(player, lease, unfinished(basis, { attempts: 0 }, admission.kind, failure), admission.fence),
      );
    }
    case 'play':
      return await play(delivery, admission.job, admission.fence);
  }
}

/** Point 2: what the message is, before the guest is touched. */
async function examine({ player, lease, sha256 }: Delivery): Promise<Admission> {
  const { address, data, headers, deliveries } = lease.message;
  const { batch, job } = address;
  const patience = { signal: lease.held };
  const [outcome, batchCancelled] = await Promise.all([
    readOutcome(player.bus, batch, job, patience),
    player.isCancelled(batch),
  ]);
  const supersedes = headers?.has(HEADERS.supersedes) ? headers.get(HEADERS.supersedes) : null;
  return admit({ address, body: data, sha256, supersedes, deliveries, outcome, batchCancelled }, (candidate) =>
    checkJob(candidate, player.functions),
  );
}

async function play(delivery: Delivery, job: TrajectoryJob, fence: number): Promise<DeliverySummary> {
  const { player, lease, sha256, stop } = delivery;
  const { address } = lease.message;
  const cancelled = player.onCancelled(address.batch);
  using signals = joinSignals(lease.held, stop, cancelled);
  const claimedAt = performance.now();
  const replica = await delivery.reservation.claim(signals.signal);
  const claimMs = Math.round(performance.now() - claimedAt);

  const begun = await beginAttempt(
    player.bus,
    {
      batch: address.batch,
      job: address.job,
      sha256,
      fence,
      maxAttempts: job.retry.max_attempts,
      runner: player.runner,
    },
    { signal: lease.held },
  ).catch(async (error: unknown) => {
    await replica.discard();
    throw error;
  });
  if (begun.kind === 'used_up') {
    void replica.discard();
    const { status, ...failure } = verdictOf(spentAttempts(begun.history, fence, sha256));
    const ending = { attempts: begun.history.attempts.length };
    return committed(await settle(player, lease, unfinished(basisOf(delivery, job), ending, status, failure), fence));
  }

  const { attempt } = begun.attempt;
  player.emit('started', address, attempt, { replica: replica.id, deliveries: lease.message.deliveries });
  await using played = await playAttempt({
    ...{ job, address, attempt, replica, body: lease.message.data, held: lease.held, signal: signals.signal },
    ...{ place: player.place, functions: player.functions, look: player.look, downloads: player.downloads },
    emit: (kind, data) => player.emit(kind, address, attempt, data),
    log: player.log,
  });
  const context: AttemptContext = {
    delivery,
    job,
    fence,
    replica,
    attempt,
    played,
    claimMs,
    number: begun.history.attempts.length,
  };
  try {
    return played.failure === null ? await conclude(context) : await afterFailure(context, played.failure);
  } catch (error) {
    throw await endedAs(context, classify(error));
  }
}

interface AttemptContext {
  delivery: Delivery;
  job: TrajectoryJob;
  fence: number;
  replica: Replica;
  attempt: string;
  played: PlayedAttempt;
  claimMs: number;
  /** Attempts started so far, this one included. */
  number: number;
}

/** Everything into S3, the manifest last; then the outcome. */
async function conclude(context: AttemptContext): Promise<DeliverySummary> {
  const { end } = context.played;
  if (end === null) throw new Error('an attempt without a failure has an end');
  const result = await finish(context, (attempt) =>
    completed(
      basisOf(context.delivery, context.job),
      { attempts: context.number, attempt, episode: episodeOf(end) },
      end.score,
    ),
  );
  return commitAttempt(context, result, null);
}

async function afterFailure(context: AttemptContext, failure: AttemptFailed): Promise<DeliverySummary> {
  const { delivery, job, fence, attempt } = context;
  const { player, lease } = delivery;
  const { next } = FAILURE_TABLE[failure.class];
  if (next === 'return') throw failure;
  if (next === 'commit') {
    const result = await finishUnfinished(context, 'cancelled', failure);
    return commitAttempt(context, result, failure);
  }
  const { address } = lease.message;
  const history = await endAttempt(player.bus, address.batch, address.job, attempt, endOf(failure), {
    signal: lease.held,
  });
  const spent = spentAttempts(history, fence, delivery.sha256);
  if (next === 'dead' || spent.length >= job.retry.max_attempts) {
    const verdict =
      next === 'dead' ? { status: 'dead' as const, class: failure.class, message: failure.message } : verdictOf(spent);
    const result = await finishUnfinished(context, verdict.status, verdict);
    return commitAttempt(context, result, null);
  }
  await finishUnfinished(context, 'failed', failure);
  const delayMs = retryDelayMs(spent.length);
  player.emit('retrying', address, attempt, { class: failure.class, message: failure.message, delay_ms: delayMs });
  await lease.nak(delayMs);
  return { end: 'retrying', failure };
}

/** Writes the attempt's end down for the record and for the count; best effort, for the failure itself is what matters. */
async function endedAs(context: AttemptContext, failure: AttemptFailed): Promise<AttemptFailed> {
  const { delivery, attempt, played } = context;
  const { address } = delivery.lease.message;
  const limit = AbortSignal.timeout(LEAVE_MS);
  await Promise.allSettled([
    played.recording.leave(LEAVE_MS),
    endAttempt(delivery.player.bus, address.batch, address.job, attempt, endOf(failure), { signal: limit }),
  ]);
  return failure;
}

async function commitAttempt(
  context: AttemptContext,
  result: Result,
  failure: AttemptFailed | null,
): Promise<DeliverySummary> {
  const { delivery, attempt, fence } = context;
  const { player, lease } = delivery;
  const standing = await settle(player, lease, result, fence);
  const { batch, job } = lease.message.address;
  // For the record only: the outcome is committed, and nothing counts this attempt any more.
  await endAttempt(
    player.bus,
    batch,
    job,
    attempt,
    failure ? endOf(failure) : { class: result.failure?.class ?? null },
    {
      signal: AbortSignal.timeout(LEAVE_MS),
    },
  ).catch((error: unknown) => player.log.warn({ err: error, batch, job, attempt }, 'end of attempt not written'));
  return committed(standing);
}

function finishUnfinished(
  context: AttemptContext,
  status: 'failed' | 'dead' | 'cancelled',
  failure: { class: AttemptFailed['class']; message: string },
): Promise<Result> {
  const { progress } = context.played;
  const episode: EpisodeBasis = {
    steps: progress.steps,
    terminated: false,
    truncated: false,
    stopReason: null,
    answer: null,
  };
  return finish(context, (attempt) =>
    unfinished(basisOf(context.delivery, context.job), { attempts: context.number, attempt, episode }, status, {
      class: failure.class,
      message: failure.message,
    }),
  );
}

async function finish(context: AttemptContext, outcomeOf: (attempt: AttemptBasis) => Result): Promise<Result> {
  const { delivery, replica, played, attempt } = context;
  const { player, lease } = delivery;
  using signals = joinSignals(lease.held, delivery.stop);
  const manifest = await played.recording.finish(
    {
      outcome: (uploadTailMs) =>
        outcomeOf({
          attempt,
          trajectory: played.recording.url,
          imageDigest: replica.image.digest,
          accelerator: replica.accelerator,
          timingsMs: {
            queue: queueMs(lease, delivery.startedAt),
            claim: context.claimMs,
            ...played.progress.timingsMs,
            upload_tail: uploadTailMs,
          },
        }),
      versions: { ...player.versions, image: replica.image.digest },
    },
    signals.signal,
  );
  player.emit('uploaded', lease.message.address, attempt, { objects: manifest.objects.length });
  return manifest.outcome;
}

/** The job stays in the queue: this host, its storage or its hold on the job failed, none of which is the job's fault. */
async function giveBack({ player, lease }: Delivery, failure: AttemptFailed): Promise<DeliverySummary> {
  if (lease.held.aborted) return { end: 'lost', failure };
  const drained = failure.cause instanceof Error && failure.cause.name === 'Drained';
  const delayMs = drained ? 0 : retryDelayMs(lease.message.deliveries);
  player.emit('retrying', lease.message.address, null, {
    class: failure.class,
    message: failure.message,
    delay_ms: delayMs,
  });
  await lease.nak(delayMs);
  return { end: 'returned', failure };
}

function basisOf({ player, lease, sha256, startedAt }: Delivery, job: TrajectoryJob | null): OutcomeBasis {
  return { address: lease.message.address, jobSha256: sha256, runner: player.runner, job, startedAt };
}

function episodeOf(end: NonNullable<PlayedAttempt['end']>): EpisodeBasis {
  const { steps, terminated, truncated, stopReason, answer } = end;
  return { steps, terminated, truncated, stopReason, answer };
}

function endOf(failure: AttemptFailed) {
  return { class: failure.class, message: failure.message, replicaLost: failure.replicaLost };
}

function committed(result: Result): DeliverySummary {
  return { end: 'committed', result };
}

/** From publication to this delivery: the server's clock against ours. */
function queueMs({ message }: Lease, startedAt: Date): number {
  return Math.max(0, startedAt.getTime() - message.publishedAt.getTime());
}
