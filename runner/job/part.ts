import type { Clock } from './clock.ts';
import { LimitPassed, within } from './limit.ts';
import { type Part, PartFailed } from './part-failed.ts';
import type { EpisodeProgress } from './progress.ts';
import type { SetupLog } from './setup-log.ts';
import type { Bound } from './timetable.ts';

/** Runs set-up or evaluation under its limit, takes its time, and names the part and the step it failed in. */
export async function part<T>(
  name: Extract<Part, 'setup' | 'evaluator'>,
  { bound, log, clock, progress }: { bound: Bound; log: SetupLog; clock: Clock; progress: EpisodeProgress },
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const beganMs = clock.monotonicMs();
  try {
    return await within(bound.ms, name, signal, work);
  } catch (error) {
    const cutOff = await log.cutOff(error);
    if (signal.aborted) throw signal.reason;
    const remedy = error instanceof LimitPassed ? `; raise ${bound.limit} if that is not enough` : '';
    const message = error instanceof Error ? error.message : String(error);
    throw new PartFailed(name, `${name}: ${cutOff === null ? '' : `${cutOff}: `}${message}${remedy}`, error);
  } finally {
    progress.timingsMs[name === 'setup' ? 'setup' : 'evaluate'] = Math.round(clock.monotonicMs() - beganMs);
  }
}
