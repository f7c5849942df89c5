import { z } from 'zod';

/**
 * What replicas of one template need, learned from those that ran. Each figure keeps its latest samples, so that a profile stays small,
 * follows a change of the work, and forgets a bad day. Before there are enough of them a constant stands in, and says that it is assumed.
 */
export const FIGURES = {
  frozen_bytes: 'Memory of its own that a frozen replica has',
  hot_bytes: 'The same of a hot one',
  idle_bytes: 'The same of one that runs and has nothing to do',
  acting_bytes: 'The same of one at the end of an episode: 95 of 100 have less',
  acting_cpu: 'Processors that an acting replica would use if it never waited for one',
  step_cpu_ms: 'Processor time of an episode, its set-up and evaluation included, by the number of its steps',
  idle_cpu: 'Processors that a desktop uses which runs and has nothing to do',
  episode_disk_bytes: 'Written to its disk by the end of an episode: 95 of 100 write less',
  clone_ms: 'From nothing to frozen',
  memory_bandwidth: "Bytes a second between memory and an acting replica's processors, where the host can measure it",
} as const;

export type Figure = keyof typeof FIGURES;
/** New samples, in the figure's unit: bytes, milliseconds, processors. */
export type Samples = Partial<Record<Figure, readonly number[]>>;

const Kept = z.object({
  /** How many there ever were. */
  count: z.number().int().min(0),
  /** The latest, oldest first. */
  values: z.array(z.number().min(0)),
});

/** `profile.json` in the template's folder. */
export const Profile = z.object({
  schema: z.literal('gymbus.profile.v1'),
  image: z.string(),
  image_digest: z.string(),
  accelerator: z.enum(['kvm', 'tcg']),
  memory_mib: z.number().int(),
  figures: z.partialRecord(z.enum(Object.keys(FIGURES) as [Figure, ...Figure[]]), Kept),
  updated_at: z.string(),
});
export type Profile = z.infer<typeof Profile>;

/** A figure as it may be planned with. */
export interface Estimate {
  /** Null where nothing is known and nothing is assumed. */
  value: number | null;
  samples: number;
  /** It rests on a constant of gymbus's, not on what was measured here. */
  assumed: boolean;
}
export type Estimates = Record<Figure, Estimate>;

/** The latest so many of each figure. */
export const MOST_KEPT = 64;
/** Fewer tell too little of how they are spread. */
const ENOUGH = 8;
/** Of acting replicas and of episodes the large ones count: the sum of what is spoken for must hold. */
const QUANTILE: Partial<Record<Figure, number>> = { acting_bytes: 0.95, episode_disk_bytes: 0.95 };

const mib = 2 ** 20;
/**
 * Episodes wait between actions, so a processor carries more than one. Under software emulation, two cores: two each left a quarter of
 * them idle (71 episodes a minute), three a twelfth (86), four and more were no faster (81 to 92) and each episode later.
 */
const ACTING_PER_CPU = { tcg: 3, kvm: 6 } as const;

/** What is assumed until it was measured. Memory errs upwards: QEMU, translated code, and all that the guest may touch. */
export function priorOf(accelerator: 'kvm' | 'tcg', guestMemoryMib: number): Record<Figure, number | null> {
  const emulated = accelerator === 'tcg';
  return {
    frozen_bytes: 24 * mib,
    hot_bytes: (emulated ? 96 : 64) * mib,
    idle_bytes: (emulated ? 128 : 96) * mib,
    // All of the guest's memory touched, the translation buffer full.
    acting_bytes: (emulated ? 192 : 32) * mib + guestMemoryMib * mib,
    acting_cpu: 1 / ACTING_PER_CPU[accelerator],
    step_cpu_ms: emulated ? 80 : 20,
    idle_cpu: emulated ? 0.1 : 0.02,
    // An episode writes some megabytes; one that fills its disk meets the floor.
    episode_disk_bytes: 256 * mib,
    clone_ms: 250,
    memory_bandwidth: null,
  };
}

export function emptyProfile(of: Pick<Profile, 'image' | 'image_digest' | 'accelerator' | 'memory_mib'>): Profile {
  return { schema: 'gymbus.profile.v1', ...of, figures: {}, updated_at: new Date(0).toISOString() };
}

/** Pure. Samples that are no number, or below nothing, are left out. */
export function mergeSamples(profile: Profile, samples: Samples, at = new Date()): Profile {
  const figures = { ...profile.figures };
  for (const figure of Object.keys(FIGURES) as Figure[]) {
    const fit = (samples[figure] ?? []).filter((value) => Number.isFinite(value) && value >= 0);
    if (fit.length === 0) continue;
    const { count, values } = figures[figure] ?? { count: 0, values: [] };
    figures[figure] = { count: count + fit.length, values: [...values, ...fit].slice(-MOST_KEPT) };
  }
  return { ...profile, figures, updated_at: at.toISOString() };
}

/** Pure. What to plan with: the median of what was measured, of some figures a high quantile, or what is assumed. */
export function estimatesOf(profile: Profile): Estimates {
  const prior = priorOf(profile.accelerator, profile.memory_mib);
  const entries = (Object.keys(FIGURES) as Figure[]).map((figure): [Figure, Estimate] => {
    const { count = 0, values = [] } = profile.figures[figure] ?? {};
    if (values.length < ENOUGH) return [figure, { value: prior[figure], samples: count, assumed: true }];
    return [figure, { value: quantile(values, QUANTILE[figure] ?? 0.5), samples: count, assumed: false }];
  });
  return Object.fromEntries(entries) as Estimates;
}

/** The least value that so large a part of them is not above. */
function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(part * sorted.length) - 1)] ?? Number.NaN;
}
