import { type Runner, type RunnerSettings, startRunner } from '../host/runner.ts';
import { CliError, EXIT } from './error.ts';
import type { Interrupt } from './interrupt.ts';

/** Errors of a start that say by themselves what to do: shown as they are, without a stack. */
const EXPLAINED = new Set([
  'RunnerRefused',
  'BusRefused',
  'StreamDiffers',
  'StorageRefused',
  'AreaUnavailable',
  'QemuUnavailable',
  'TemplateFailed',
]);

/** Starts a runner for a command. @throws CliError for everything that says what to do about it */
export async function startRunnerForCli(
  settings: Omit<RunnerSettings, 'signal'>,
  interrupt: Interrupt,
): Promise<Runner> {
  try {
    return await startRunner({ ...settings, signal: interrupt.signal });
  } catch (error) {
    interrupt.signal.throwIfAborted();
    if (error instanceof Error && EXPLAINED.has(error.name))
      throw new CliError(error.message, EXIT.no, { cause: error });
    throw error;
  }
}

/** Lets a runner pull until a signal comes, then drains it; a second signal gives the jobs under way back at once. */
export async function untilStopped(runner: Runner, interrupt: Interrupt): Promise<void> {
  const stopped = new Promise<void>((resolve) => {
    if (interrupt.signal.aborted) resolve();
    else interrupt.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  interrupt.hurry.addEventListener('abort', () => runner.hurry(), { once: true });
  try {
    await Promise.race([stopped, runner.failed]);
  } finally {
    await runner.stop();
  }
}
