import { z } from 'zod';
import type { PolicyAnswer } from '../../functions/contract.ts';
import { Action, joinProblems, readBy } from '../../schemas/index.ts';
import { PartFailed } from './part-failed.ts';

/** More in one answer is a policy gone wrong, not a plan. */
const MAX_ACTIONS = 256;

const Answer = z.object({
  actions: z.array(Action).min(1).max(MAX_ACTIONS),
  thoughts: z.string().optional(),
});

/**
 * Reads what a policy answered, which may come from anywhere.
 * @returns null when the policy has nothing more to do
 * @throws PartFailed of class `policy` naming the field that is wrong
 */
export function readAnswer(value: unknown): PolicyAnswer | null {
  if (value === null) return null;
  const read = readBy(Answer, value);
  if (read.ok) return read.data;
  throw new PartFailed('policy', `malformed answer of the policy: ${joinProblems(read.problems)}`, undefined);
}
