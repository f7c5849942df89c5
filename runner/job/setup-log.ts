import type { SetupListener, SetupRun } from '../../functions/setup/run.ts';
import type { Clock } from './clock.ts';
import type { Recorder, SetupLine } from './recorder.ts';

/** Writes what set-up steps did into the attempt's record, and knows which one is running. */
export class SetupLog implements SetupListener {
  readonly #phase: SetupLine['phase'];
  readonly #recorder: Recorder;
  readonly #clock: Clock;
  #running: { index: number; type: string; startedAt: Date; beganMs: number } | null = null;

  constructor(phase: SetupLine['phase'], recorder: Recorder, clock: Clock) {
    this.#phase = phase;
    this.#recorder = recorder;
    this.#clock = clock;
  }

  started(index: number, type: string): void {
    this.#running = { index, type, startedAt: this.#clock.now(), beganMs: this.#clock.monotonicMs() };
  }

  async ended({ index, type, startedAt, durationMs, record, error }: SetupRun): Promise<void> {
    this.#running = null;
    await this.#write({ ...record, index, type, startedAt, durationMs, error });
  }

  /** Records the step that was cut off, where one was running. @returns its name for a message, else null */
  async cutOff(reason: unknown): Promise<string | null> {
    const running = this.#running;
    if (!running) return null;
    this.#running = null;
    const durationMs = Math.round(this.#clock.monotonicMs() - running.beganMs);
    const error = reason instanceof Error ? reason : new Error(String(reason));
    await this.#write({ ...running, durationMs, error });
    return `step ${running.index} (${running.type})`;
  }

  #write(run: Omit<SetupRun, 'record'> & SetupRun['record']): Promise<void> {
    const { index, type, startedAt, durationMs, error, ...record } = run;
    return this.#recorder.setup({
      ...record,
      phase: this.#phase,
      index,
      type,
      started_at: startedAt.toISOString(),
      duration_ms: durationMs,
      ...(error ? { error: error.message } : {}),
    });
  }
}
