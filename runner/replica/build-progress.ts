/** Phases of making a template, in order; each with about how long it took when it was measured, in milliseconds. */
const PHASES = {
  waiting: 0,
  copying: 1_500,
  booting: 31_000,
  desktop: 8_000,
  warming: 60_000,
  settling: 3_000,
  saving: 1_500,
  done: 0,
} as const;
const TOTAL_MS = Object.values(PHASES).reduce<number>((sum, ms) => sum + ms, 0);
const TICK_MS = 1_000;

export type BuildPhase = keyof typeof PHASES;

export interface BuildProgress {
  phase: BuildPhase;
  /** 0 to 1 over the whole build. Only `done` is 1. */
  fraction: number;
  message: string;
}

/** Tells how far a build is: at each change of phase, and every second within one by the time it usually takes. */
export class ProgressReporter implements Disposable {
  readonly #report: (progress: BuildProgress) => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(report: (progress: BuildProgress) => void) {
    this.#report = report;
  }

  enter(phase: BuildPhase, message: string): void {
    this[Symbol.dispose]();
    const startedAt = performance.now();
    const tell = (): void => {
      const fraction = progressFraction(phase, performance.now() - startedAt);
      this.#report({ phase, fraction, message });
    };
    tell();
    if (PHASES[phase] > 0) this.#timer = setInterval(tell, TICK_MS);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

/** Never goes back, and never beyond its phase: one that takes longer than usual comes ever nearer to its end. */
export function progressFraction(phase: BuildPhase, elapsedMs: number): number {
  const names = Object.keys(PHASES) as BuildPhase[];
  const before = names.slice(0, names.indexOf(phase)).reduce<number>((sum, name) => sum + PHASES[name], 0);
  const usual = PHASES[phase];
  const within = usual === 0 ? 0 : usual * (1 - Math.exp((-1.5 * elapsedMs) / usual));
  return (before + within) / TOTAL_MS;
}
