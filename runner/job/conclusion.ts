import { setTimeout as sleep } from 'node:timers/promises';
import type { Result, TrajectoryJob } from '../../schemas/index.ts';
import { endAttempt } from '../bus/attempts.ts';
import type { Lease } from '../bus/lease.ts';
import type { Replica } from '../replica/contract.ts';
import type { PlayedAttempt } from './attempt.ts';
import { basisOf, committed, type Delivery, type DeliverySummary } from './delivery-context.ts';
import { type AttemptFailed, FAILURE_TABLE, retryDelayMs, spentAttempts, verdictOf } from './failure.ts';
import { type AttemptBasis, completed, type EpisodeBasis, unfinished } from './result.ts';
import { settle } from './settlement.ts';

/** What a failed attempt recorded is worth this much waiting before the job goes to somebody else. */
const LEAVE_MS = 5_000;
/** With nothing recorded there is only the bus to wait for, which answers in milliseconds or is away. */
const UNPLAYED_MS = 500;

export interface AttemptContext {
  delivery: Delivery;
  job: TrajectoryJob;
  fence: number;
  replica: Replica;
  attempt: string;
  /** Of its id, as the bus finds it. */
  suffix: string;
  played: PlayedAttempt;
  claimMs: number;
  /** Attempts started so far, this one included. */
  number: number;
}

/** Everything into S3, the manifest last; then the outcome. */
export async function conclude(context: AttemptContext): Promise<DeliverySummary> {
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

export async function afterFailure(context: AttemptContext, failure: AttemptFailed): Promise<DeliverySummary> {
  const { delivery, job, attempt, suffix } = context;
  const { player, lease, hold } = delivery;
  const { next } = FAILURE_TABLE[failure.class];
  if (next === 'return') throw failure;
  if (next === 'commit') {
    const result = await finishUnfinished(context, 'cancelled', failure);
    return commitAttempt(context, result, failure);
  }
  // Without the lease another may be playing the job, and a verdict of ours would forestall its outcome.
  lease.assertHeld();
  const { address } = lease.message;
  const history = await endAttempt(player.bus, address.batch, address.job, suffix, endOf(failure), {
    signal: hold,
  });
  const spent = history === null ? [] : spentAttempts(history);
  if (next === 'dead' || spent.length >= job.retry.max_attempts) {
    const verdict =
      next === 'dead' ? { status: 'dead' as const, class: failure.class, message: failure.message } : verdictOf(spent);
    const result = await finishUnfinished(context, verdict.status, verdict);
    lease.assertHeld();
    return commitAttempt(context, result, null);
  }
  await finishUnfinished(context, 'failed', failure);
  const delayMs = retryDelayMs(spent.length);
  player.emit('retrying', address, attempt, { class: failure.class, message: failure.message, delay_ms: delayMs });
  await lease.nak(delayMs);
  return { end: 'retrying', failure };
}

/**
 * Writes an attempt's end down, for one that never ends counts as killed; while the bus is away that goes on behind the
 * back of who waits here. What it recorded goes up meanwhile, where it was played.
 * @returns the failure, within `LEAVE_MS`
 */
export async function endedAs(
  { player, lease }: Delivery,
  suffix: string,
  failure: AttemptFailed,
  played: PlayedAttempt | null,
): Promise<AttemptFailed> {
  const { batch, job } = lease.message.address;
  const writing = endAttempt(player.bus, batch, job, suffix, endOf(failure)).catch((error: unknown) =>
    player.log.warn({ err: error, batch, job, suffix }, 'end of attempt not written'),
  );
  await Promise.all([
    played?.recording.leave(LEAVE_MS),
    Promise.race([writing, sleep(played === null ? UNPLAYED_MS : LEAVE_MS, undefined, { ref: false })]),
  ]);
  return failure;
}

async function commitAttempt(
  context: AttemptContext,
  result: Result,
  failure: AttemptFailed | null,
): Promise<DeliverySummary> {
  const { delivery, suffix, fence } = context;
  const { player, lease } = delivery;
  const standing = await settle(delivery, result, fence);
  const { batch, job } = lease.message.address;
  // For the record only: the outcome is committed, and nothing counts this attempt any more.
  await endAttempt(
    player.bus,
    batch,
    job,
    suffix,
    failure ? endOf(failure) : { class: result.failure?.class ?? null },
    {
      signal: AbortSignal.timeout(LEAVE_MS),
    },
  ).catch((error: unknown) => player.log.warn({ err: error, batch, job, suffix }, 'end of attempt not written'));
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
  const manifest = await played.recording.finish(
    {
      outcome: (uploadTailMs) =>
        outcomeOf({
          attempt,
          trajectory: played.recording.url,
          imageDigest: replica.image.digest,
          accelerator: replica.accelerator,
          network: played.network,
          timingsMs: {
            queue: queueMs(lease, delivery.startedAt),
            claim: context.claimMs,
            ...played.progress.timingsMs,
            upload_tail: uploadTailMs,
          },
        }),
      versions: { ...player.versions, image: replica.image.digest },
    },
    delivery.persist,
  );
  player.emit('uploaded', lease.message.address, attempt, { objects: manifest.objects.length });
  return manifest.outcome;
}

function episodeOf(end: NonNullable<PlayedAttempt['end']>): EpisodeBasis {
  const { steps, terminated, truncated, stopReason, answer } = end;
  return { steps, terminated, truncated, stopReason, answer };
}

function endOf(failure: AttemptFailed) {
  return { class: failure.class, message: failure.message, replicaLost: failure.replicaLost };
}

/** From publication to this delivery: the server's clock against ours. */
function queueMs({ message }: Lease, startedAt: Date): number {
  return Math.max(0, startedAt.getTime() - message.publishedAt.getTime());
}
