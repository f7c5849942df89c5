import { z } from 'zod';

/** What the helper's `health` answers: a look at everything that may hang in a desktop. */
export const HealthReport = z.object({
  x_answers: z.boolean(),
  /** Windows whose applications take part in a window manager's pings. */
  windows: z.array(
    z.object({
      id: z.number(),
      answered: z.boolean(),
      class: z.string().default(''),
      title: z.string().default(''),
      /** Processor time its process has used so far, in clock ticks; null when that is not known. */
      ticks: z.number().nullable().default(null),
    }),
  ),
});
export type HealthReport = z.infer<typeof HealthReport>;

/** What is suspected of a guest, from one look to the next. */
export interface Suspicions {
  /** Since when the X server has not answered, in the guest's own time. */
  readonly xSilentSinceMs: number | null;
  /** Windows whose applications neither answer nor work, by id. */
  readonly idle: ReadonlyMap<number, { sinceMs: number; ticks: number | null }>;
  /** Windows that have answered at some time: an application that never did may know no pings whatever it says. */
  readonly answered: ReadonlySet<number>;
}

export const UNSUSPECTED: Suspicions = { xSilentSinceMs: null, idle: new Map(), answered: new Set() };

/** An application that loads a document answers nobody, but it works; one that does neither for so long hangs. */
export const APPLICATION_PATIENCE_MS = 20_000;
/** Beyond the seconds that the helper itself waits for it. */
export const X_PATIENCE_MS = 8_000;
/** Ticks of 10 ms from one look to the next: what a process uses that only wakes up now and then. */
const IDLE_TICKS = 2;

/**
 * Judges a look at a guest by the ones before it. Pure.
 * @param nowMs in the guest's own time: what its processors wait for a busy host does not count
 * @returns what is suspected now, and the fault in words once it is certain
 */
export function judgeHealth(
  before: Suspicions,
  report: HealthReport,
  nowMs: number,
): { suspicions: Suspicions; fault: string | null } {
  if (!report.x_answers) {
    const xSilentSinceMs = before.xSilentSinceMs ?? nowMs;
    const fault =
      nowMs - xSilentSinceMs >= X_PATIENCE_MS
        ? `the X server hangs: no answer for ${seconds(nowMs - xSilentSinceMs)}`
        : null;
    return { suspicions: { ...before, xSilentSinceMs }, fault };
  }
  const idle = new Map<number, { sinceMs: number; ticks: number | null }>();
  const answered = new Set<number>();
  let fault: string | null = null;
  for (const window of report.windows) {
    if (window.answered || before.answered.has(window.id)) answered.add(window.id);
    if (window.answered || !before.answered.has(window.id)) continue;
    const known = before.idle.get(window.id);
    const worked = known !== undefined && (window.ticks ?? 0) - (known.ticks ?? 0) > IDLE_TICKS;
    const sinceMs = known === undefined || worked ? nowMs : known.sinceMs;
    idle.set(window.id, { sinceMs, ticks: window.ticks });
    if (nowMs - sinceMs >= APPLICATION_PATIENCE_MS) {
      const name = window.title === '' ? window.class : `${window.class} (${window.title})`;
      fault ??= `the application ${name} hangs: no answer and no work for ${seconds(nowMs - sinceMs)}`;
    }
  }
  return { suspicions: { xSilentSinceMs: null, idle, answered }, fault };
}

const seconds = (ms: number): string => `${Math.round(ms / 1_000)} s`;
