import { type AttemptHistory, type AttemptRecord, cutMessage, type FailureClass } from '../../schemas/index.ts';

/**
 * What a failed attempt does to its job. One table; nothing else decides.
 * `spends`: counts against `retry.max_attempts`. `next`: `dead` commits at once; `retry` plays again until the
 * attempts are used up; `return` gives the message back, for this host's trouble is not the job's; `commit` records it.
 */
export const FAILURE_TABLE: Record<FailureClass, { spends: boolean; next: 'dead' | 'retry' | 'return' | 'commit' }> = {
  invalid_job: { spends: false, next: 'dead' },
  job_id_reused: { spends: false, next: 'dead' },
  poison: { spends: false, next: 'dead' },
  setup: { spends: true, next: 'retry' },
  policy: { spends: true, next: 'retry' },
  evaluator: { spends: true, next: 'retry' },
  guest: { spends: true, next: 'retry' },
  host: { spends: false, next: 'return' },
  storage: { spends: false, next: 'return' },
  cancelled: { spends: false, next: 'commit' },
};

/** A failed part of an attempt with its class: what every error of playing one becomes. */
export class AttemptFailed extends Error {
  override readonly name = 'AttemptFailed';
  readonly class: FailureClass;
  /** The machine itself died: counts towards poison. A fault that was found in its guest does not. */
  readonly replicaLost: boolean;
  constructor(failureClass: FailureClass, message: string, options: { cause?: unknown; replicaLost?: boolean } = {}) {
    super(cutMessage(message), { cause: options.cause });
    this.class = failureClass;
    this.replicaLost = options.replicaLost ?? false;
  }
}

/** The attempts that count against a job's `max_attempts`, in order. One that never ended counts: its runner died with it. */
export function spentAttempts(history: AttemptHistory): AttemptRecord[] {
  return history.attempts.filter(
    (attempt) => attempt.ended_at === null || attempt.class === null || FAILURE_TABLE[attempt.class].spends,
  );
}

/** First delay of a retry, doubled with each spent attempt up to a minute: long enough for a sick host to be passed over. */
const RETRY_BASE_MS = 1_000;
const RETRY_CAP_MS = 60_000;

/** @param spent attempts spent so far, the failed one included @returns milliseconds, with up to a quarter of jitter */
export function retryDelayMs(spent: number, random: () => number = Math.random): number {
  const delay = Math.min(RETRY_CAP_MS, RETRY_BASE_MS * 2 ** Math.max(0, spent - 1));
  return Math.round(delay * (1 + random() / 4));
}

export type Verdict = { status: 'failed' | 'dead'; class: FailureClass; message: string };

/**
 * How a job ends whose attempts are used up: `failed` with its last attempt's class, or `dead` as poison
 * when every spent attempt took its replica or its runner down with it.
 * @param spent the attempts that counted, in order; at least one
 */
export function verdictOf(spent: readonly AttemptRecord[]): Verdict {
  const killed = spent.filter((attempt) => attempt.ended_at === null || attempt.replica_lost);
  if (killed.length === spent.length) {
    const history = spent.map(
      (attempt) => `${attempt.attempt} on ${attempt.runner}: ${attempt.message ?? 'runner lost'}`,
    );
    return {
      status: 'dead',
      class: 'poison',
      message: `each of its ${spent.length} attempts ended with its replica or runner dead (${history.join('; ')})`,
    };
  }
  const last = spent.findLast((attempt) => attempt.class !== null);
  return {
    status: 'failed',
    class: last?.class ?? 'guest',
    message: last?.message ?? 'no message was recorded',
  };
}
