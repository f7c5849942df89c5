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

/**
 * Runs set-up steps in order, each told of when it is over; the first that fails is the last.
 * @throws SetupError naming the step, its cause what went wrong; the signal's reason; what `onRun` throws
 */
export async function runSetup(
  steps: readonly SetupStep[],
  functions: Functions,
  { guest, context }: { guest: Guest; context: JobContext },
  signal: AbortSignal,
  onRun: (run: SetupRun) => Promise<void>,
): Promise<void> {
  for (const [index, { type, parameters }] of steps.entries()) {
    signal.throwIfAborted();
    const startedAt = new Date();
    const began = performance.now();
    const over = (record: SetupRecord, error: Error | null): Promise<void> =>
      onRun({ index, type, startedAt, durationMs: Math.round(performance.now() - began), record, error });
    let record: SetupRecord;
    try {
      const setup = functions.setups.get(type);
      if (!setup) throw new SetupError(`there is no such set-up type`);
      record = await setup.run(setup.parameters.parse(parameters), guest, context, signal);
    } catch (error) {
      const cause = (signal.aborted ? signal.reason : error) as Error;
      await over(error instanceof SetupError ? error.record : {}, cause);
      if (signal.aborted) throw signal.reason;
      throw new SetupError(`step ${index} (${type}): ${cause.message}`, { cause });
    }
    await over(record, null);
  }
}
