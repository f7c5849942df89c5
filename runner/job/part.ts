import type { Clock } from './clock.ts';
import { LimitPassed, within } from './limit.ts';
import { type Part, PartFailed } from './part-failed.ts';
import type { EpisodeProgress } from './progress.ts';
import type { SetupLog } from './setup-log.ts';

/** Runs set-up or evaluation under its limit, takes its time, and names the part and the step it failed in. */
export async function part<T>(
  name: Extract<Part, 'setup' | 'evaluator'>,
  bounds: { limit: string; limitS: number; log: SetupLog; clock: Clock; progress: EpisodeProgress },
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { log, clock, progress } = bounds;
  const beganMs = clock.monotonicMs();
  try {
    return await within(bounds.limitS * 1_000, name, signal, work);
  } catch (error) {
    const cutOff = await log.cutOff(error);
    if (signal.aborted) throw signal.reason;
    const remedy = error instanceof LimitPassed ? `; raise ${bounds.limit} if that is not enough` : '';
    const message = error instanceof Error ? error.message : String(error);
    throw new PartFailed(name, `${name}: ${cutOff === null ? '' : `${cutOff}: `}${message}${remedy}`, error);
  } finally {
    progress.timingsMs[name === 'setup' ? 'setup' : 'evaluate'] = Math.round(clock.monotonicMs() - beganMs);
  }
}
