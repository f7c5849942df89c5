import type { SetupRecord } from '../../functions/contract.ts';
import type { EventKind, Observation, Step } from '../../schemas/index.ts';

/**
 * Where an attempt's trajectory goes. What resolves is on local disk; uploading it is the recorder's own affair.
 * What throws is the storage's own error and ends the attempt as it is.
 */
export interface Recorder {
  /** @param step 0 for the reset observation @returns the picture's object, with the size read from the PNG */
  screenshot(step: number, png: Buffer): Promise<NonNullable<Observation['screenshot']>>;
  /** Appends one line to the trajectory; lines come in order, from 0. */
  step(line: Step): Promise<void>;
  /** Appends one line to the record of the set-up and of the evaluator's postconfig. */
  setup(line: SetupLine): Promise<void>;
  /** Best effort: never throws, and nothing waits for it. */
  event(kind: EventKind, data: Record<string, EventValue>): void;
}

type EventValue = string | number | boolean | null;

/** One set-up step as it is kept with the attempt. */
export interface SetupLine extends SetupRecord {
  phase: 'setup' | 'postconfig';
  index: number;
  type: string;
  started_at: string;
  duration_ms: number;
  /** Why it failed, when it did; nothing is run after it. */
  error?: string;
}
