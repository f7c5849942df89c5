import type { TimingsMs } from '../../schemas/index.ts';

export type EpisodePhase = 'setup' | 'steps' | 'evaluate';

/** How far an episode has come; written by it alone, readable while it runs and after it failed. */
export interface EpisodeProgress {
  phase: EpisodePhase | null;
  /** Answers of the policy that were played and recorded. */
  steps: number;
  /** `setup`, `policy`, `steps` (acting and looking), `evaluate`. */
  timingsMs: TimingsMs;
}

export function freshProgress(): EpisodeProgress {
  return { phase: null, steps: 0, timingsMs: {} };
}
