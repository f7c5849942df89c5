import type { SetupStep } from '../../schemas/index.ts';
import { type JobContext, SetupError, type SetupRecord } from '../contract.ts';
import type { Guest } from '../guest.ts';
import type { Functions } from '../registry.ts';

/** One step that has been run. */
export interface SetupRun {
  index: number;
  type: string;
  startedAt: Date;
  durationMs: number;
  record: SetupRecord;
  /** Null when it did what it should. */
  error: Error | null;
}

/** Told of each step as it begins and when it is over; not of the end of one that the signal cut off. */
export interface SetupListener {
  started(index: number, type: string): void;
  ended(run: SetupRun): Promise<void>;
}

/**
 * Runs set-up steps in order; the first that fails is the last.
 * @throws SetupError naming the step, its cause what went wrong; the signal's reason; what the listener throws
 */
export async function runSetup(
  steps: readonly SetupStep[],
  functions: Functions,
  { guest, context }: { guest: Guest; context: JobContext },
  signal: AbortSignal,
  listener: SetupListener,
): Promise<void> {
  for (const [index, { type, parameters }] of steps.entries()) {
    signal.throwIfAborted();
    listener.started(index, type);
    const startedAt = new Date();
    const began = performance.now();
    let record: SetupRecord = {};
    let error: Error | null = null;
    try {
      const setup = functions.setups.get(type);
      if (!setup) throw new SetupError('there is no such set-up type');
      record = await setup.run(setup.parameters.parse(parameters), guest, context, signal);
    } catch (thrown) {
      error = thrown as Error;
      if (error instanceof SetupError) record = error.record;
    }
    signal.throwIfAborted();
    const durationMs = Math.round(performance.now() - began);
    await listener.ended({ index, type, startedAt, durationMs, record, error });
    if (error) throw new SetupError(`step ${index} (${type}): ${error.message}`, { cause: error });
  }
}
