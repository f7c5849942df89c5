import type { Limits } from '../../schemas/index.ts';

/** A part's time and the limit that sets it, for who wants more of it. */
export interface Bound {
  ms: number;
  limit: `limits.${keyof Limits}`;
}

/** When the parts of one episode must be over; times on its clock. */
export interface Timetable {
  setup: Bound;
  /** From then on no policy is asked and nothing is done in the guest: the episode is truncated. */
  stepsEndMs: number;
  evaluation(nowMs: number): Bound;
}

/** An episode whose steps used up their time is evaluated all the same: so much of `total_s` at most is kept for that. */
const EVALUATION_PART = 1 / 4;

/**
 * `total_s` bounds set-up, steps and evaluation together; each has its own limit within it. What is kept for the
 * evaluation, `evaluate_s` but at most a quarter of all, neither set-up nor steps may use.
 * @param startMs when the replica was claimed
 */
export function timetable(limits: Limits, evaluated: boolean, startMs: number): Timetable {
  const totalMs = limits.total_s * 1_000;
  const evaluateMs = limits.evaluate_s * 1_000;
  const keptMs = evaluated ? Math.min(evaluateMs, totalMs * EVALUATION_PART) : 0;
  const earlier = (own: Bound, leftMs: number): Bound =>
    own.ms <= leftMs ? own : { ms: Math.max(0, leftMs), limit: 'limits.total_s' };
  return {
    setup: earlier({ ms: limits.setup_s * 1_000, limit: 'limits.setup_s' }, totalMs - keptMs),
    stepsEndMs: startMs + totalMs - keptMs,
    evaluation: (nowMs) => earlier({ ms: evaluateMs, limit: 'limits.evaluate_s' }, startMs + totalMs - nowMs),
  };
}
