import { type Action, type Evaluator, type Getter, joinProblems, readBy } from '../../schemas/index.ts';
import { type EvaluationContext, EvaluatorError, type JobContext, type MetricFunction } from '../contract.ts';
import { type Guest, GuestFileError } from '../guest.ts';
import type { Functions } from '../registry.ts';
import { runSetup, type SetupListener } from '../setup/run.ts';
import { ByteBudget } from './budget.ts';
import { INFEASIBLE } from './metrics/infeasible.ts';
import { type Check, planOf } from './plan.ts';

export interface EvaluationInput {
  evaluator: Evaluator;
  /** The policy's last action, null when it gave none. */
  lastAction: Action | null;
  functions: Functions;
  guest: Guest;
  context: JobContext;
  postconfigListener: SetupListener;
}

/** 0 to 1, and what each metric that was asked gave; those after an early end were not. */
export interface Evaluation {
  score: number;
  metrics: { func: string; score: number }[];
}

/**
 * Scores the end state by OSWorld's algorithm: postconfig; `infeasible` by the last action; a policy that gave up scores 0;
 * then metric after metric, ending early when `and` meets a 0 or `or` a 1; the mean under `and`, the most under `or`.
 * @throws EvaluatorError whenever the guest, a getter or a metric gave no answer; the signal's reason
 */
export async function evaluate(input: EvaluationInput, signal: AbortSignal): Promise<Evaluation> {
  const { evaluator, lastAction } = input;
  await postconfig(input, signal);
  const gaveUp = lastAction?.type === 'fail';
  if (evaluator.func === INFEASIBLE) return single(INFEASIBLE, gaveUp ? 1 : 0);
  if (gaveUp) return { score: 0, metrics: [] };

  const { checks, problems } = planOf(evaluator);
  if (problems.length > 0) throw new EvaluatorError(problems.join('; '));
  const metrics: Evaluation['metrics'] = [];
  const decisive = evaluator.conj === 'and' ? 0 : 1;
  const scoring: Scoring = { ...input, context: { ...input.context, budget: new ByteBudget() } };
  for (const check of checks) {
    const score = await scoreOf(check, scoring, signal);
    metrics.push({ func: check.func, score });
    if (checks.length > 1 && score === decisive) return { score, metrics };
  }
  const scores = metrics.map(({ score }) => score);
  const score =
    evaluator.conj === 'and' ? scores.reduce((sum, one) => sum + one, 0) / scores.length : Math.max(...scores);
  return { score, metrics };
}

function single(func: string, score: number): Evaluation {
  return { score, metrics: [{ func, score }] };
}

async function postconfig(
  { evaluator, functions, guest, context, postconfigListener }: EvaluationInput,
  signal: AbortSignal,
) {
  try {
    await runSetup(evaluator.postconfig, functions, { guest, context }, signal, postconfigListener);
  } catch (error) {
    throw explained('postconfig', error, signal);
  }
}

type Scoring = EvaluationInput & { context: EvaluationContext };

async function scoreOf(check: Check, input: Scoring, signal: AbortSignal): Promise<number> {
  const metric = input.functions.metrics.get(check.func);
  if (!metric) throw new EvaluatorError(`there is no metric ${JSON.stringify(check.func)}`);
  let result: unknown = null;
  if (check.result) {
    try {
      result = await stateOf(check.result, input, signal);
    } catch (error) {
      // The guest answered: there is no such file. Nothing can be compared, and that is the agent's doing.
      if (error instanceof GuestFileError && error.code === 'ENOENT') return 0;
      throw explained(`result ${check.result.type}`, error, signal);
    }
  }
  let score: number;
  try {
    const expected = check.expected ? await stateOf(check.expected, input, signal) : undefined;
    score = await metric.score(result, expectedOf(metric, expected), metric.options.parse(check.options), signal);
  } catch (error) {
    throw explained(`metric ${check.func}`, error, signal);
  }
  if (!(score >= 0 && score <= 1)) {
    throw new EvaluatorError(`metric ${check.func} gave ${score}: a score is a number from 0 to 1`);
  }
  return score;
}

/** What a rule says has been checked with the job; what another getter got is known only here. */
function expectedOf(metric: MetricFunction, expected: unknown): unknown {
  if (metric.expected === null) return undefined;
  const read = readBy(metric.expected, expected, ['expected']);
  if (read.ok) return read.data;
  throw new EvaluatorError(joinProblems(read.problems));
}

function stateOf({ type, ...parameters }: Getter, { functions, guest, context }: Scoring, signal: AbortSignal) {
  const getter = functions.getters.get(type);
  if (!getter) throw new EvaluatorError(`there is no getter ${JSON.stringify(type)}`);
  return getter.get(getter.parameters.parse(parameters), guest, context, signal);
}

function explained(where: string, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  return new EvaluatorError(`${where}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}
