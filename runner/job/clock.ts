/** Time as an episode sees it. */
export interface Clock {
  /** Never goes back; only differences mean something. */
  monotonicMs(): number;
  /** For the record, never for a deadline. */
  now(): Date;
}

export const systemClock: Clock = { monotonicMs: () => performance.now(), now: () => new Date() };
