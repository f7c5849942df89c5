import type { FailureClass } from '../../schemas/index.ts';

/** The parts of an episode that can fail by themselves. */
export type Part = Extract<FailureClass, 'setup' | 'policy' | 'guest' | 'evaluator'>;

/**
 * One part of an episode failed or did not answer; what follows is the failure table's business.
 * `cause` is that part's own error: `SetupError`, `GuestSilent`, `ReplicaLost`, `EvaluatorError`, `DeadlinePassed`,
 * or storage's error where a set-up step read an input.
 */
export class PartFailed extends Error {
  override readonly name = 'PartFailed';
  readonly part: Part;
  constructor(part: Part, message: string, cause: unknown) {
    super(message, { cause });
    this.part = part;
  }
}

/** An error and what caused it, outermost first: for a table that looks for one of its classes. */
export function* causesOf(error: unknown): Generator<unknown> {
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 16; depth++) {
    yield at;
    at = at instanceof Error ? at.cause : undefined;
  }
}
