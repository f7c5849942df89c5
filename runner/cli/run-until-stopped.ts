import { type Runner, type RunnerSettings, startRunner } from '../host/runner.ts';
import type { Interrupt } from './interrupt.ts';

/** Starts a runner for a command. An interruption is told as such, whatever it looked like inside. */
export async function startRunnerForCli(
  settings: Omit<RunnerSettings, 'signal'>,
  interrupt: Interrupt,
): Promise<Runner> {
  try {
    return await startRunner({ ...settings, signal: interrupt.signal });
  } catch (error) {
    interrupt.signal.throwIfAborted();
    throw error;
  }
}

/**
 * Lets a runner pull until a signal comes, then drains it; a second signal, or a lost npm, gives the jobs under way
 * back at once.
 * @param onDrain called when it is told to stop while jobs are under way, with their number
 */
export async function untilStopped(
  runner: Runner,
  interrupt: Interrupt,
  onDrain: (jobs: number) => void = () => undefined,
): Promise<void> {
  const stopped = new Promise<void>((resolve) => {
    if (interrupt.signal.aborted) resolve();
    else interrupt.signal.addEventListener('abort', () => resolve(), { once: true });
  });
  if (interrupt.hurry.aborted) runner.hurry();
  interrupt.hurry.addEventListener('abort', () => runner.hurry(), { once: true });
  try {
    await Promise.race([stopped, runner.failed]);
    const leased = runner.status().replicas.leased ?? 0;
    if (leased > 0) onDrain(leased);
  } finally {
    await runner.stop();
  }
}
