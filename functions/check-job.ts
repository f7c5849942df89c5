import type { z } from 'zod';
import { type Getter, MOST_PROBLEMS, quote, readBy, type SetupStep, type TrajectoryJob } from '../schemas/index.ts';
import type { MetricFunction } from './contract.ts';
import { INFEASIBLE } from './evaluation/metrics/infeasible.ts';
import { type Check, planOf } from './evaluation/plan.ts';
import { hostProblems } from './network/hosts.ts';
import { builtinFunctions, type Functions } from './registry.ts';

/**
 * What is wrong with a job beyond its shape: functions that are not there, parameters they do not take, what this
 * version does not offer. Touches nothing; asked before a guest is. Of very many problems the first are told, and nothing
 * is looked at after them.
 * @param allowedHosts that the policy of its image lets jobs ask for; null where the image is not known
 * @returns one line a problem, each with the field, the value and the remedy; none when the job can be played
 */
export function checkJob(
  job: TrajectoryJob,
  functions: Functions = builtinFunctions,
  allowedHosts: readonly string[] | null = null,
): string[] {
  const told: string[] = [];
  for (const problem of problemsOf(job, functions, allowedHosts)) {
    if (told.length === MOST_PROBLEMS) return [...told, 'and more'];
    told.push(problem);
  }
  return told;
}

/** In the order of their looking. */
type Problems = Generator<string>;

function* problemsOf(job: TrajectoryJob, functions: Functions, allowedHosts: readonly string[] | null): Problems {
  yield* policyProblems(job, functions);
  for (const [index, step] of job.setup.entries()) yield* setupProblems(['setup', index], step, job, functions);
  yield* evaluatorProblems(job, functions);
  if (job.observation.a11y_tree) {
    yield 'observation.a11y_tree: this version takes no accessibility trees (got true); set it to false or leave it out';
  }
  if (allowedHosts) yield* hostProblems(job.network?.hosts ?? [], { name: job.image, allows: allowedHosts });
}

type Path = readonly (string | number)[];

function* policyProblems({ policy }: TrajectoryJob, { policies }: Functions): Problems {
  const known = policies.get(policy.name);
  if (known) yield* parameterProblems(['policy', 'params'], known.params, policy.params);
  else yield unknownName(['policy', 'name'], 'policy', policy.name, policies.keys());
}

function* setupProblems(at: Path, step: SetupStep, job: TrajectoryJob, { setups }: Functions): Problems {
  const known = setups.get(step.type);
  if (!known) return yield unknownName([...at, 'type'], 'set-up type', step.type, setups.keys());
  const here = [...at, 'parameters'];
  const problems = parameterProblems(here, known.parameters, step.parameters);
  yield* problems;
  if (problems.length > 0 || !known.check) return;
  for (const problem of known.check(known.parameters.parse(step.parameters), job)) yield `${here.join('.')}.${problem}`;
}

function* evaluatorProblems(job: TrajectoryJob, functions: Functions): Problems {
  const { evaluator } = job;
  if (!evaluator) return;
  for (const [index, step] of evaluator.postconfig.entries()) {
    yield* setupProblems(['evaluator', 'postconfig', index], step, job, functions);
  }
  if (evaluator.func === INFEASIBLE) return;
  const { checks, problems } = planOf(evaluator);
  for (const problem of problems) yield `evaluator.${problem}`;
  if (problems.length > 0) return;
  const many = Array.isArray(evaluator.func);
  for (const [index, check] of checks.entries()) yield* checkProblems(check, many ? [index] : [], functions);
}

/** @param place of the check in the evaluator's lists, empty where there are none */
function* checkProblems(check: Check, place: Path, functions: Functions): Problems {
  const field = (name: string): Path => ['evaluator', name, ...place];
  if (check.func === INFEASIBLE) {
    return yield `${field('func').join('.')}: "${INFEASIBLE}" looks at no result and stands alone: write "func": "${INFEASIBLE}"`;
  }
  const metric = functions.metrics.get(check.func);
  if (!metric) {
    return yield unknownName(field('func'), 'metric', check.func, [...functions.metrics.keys(), INFEASIBLE]);
  }
  if (check.result) yield* getterProblems(field('result'), check.result, functions);
  else yield `${field('result').join('.')}: metric ${check.func} needs a result to look at; name a getter`;
  yield* expectedProblems(field('expected'), check.expected, metric, functions);
  yield* parameterProblems(field('options'), metric.options, check.options);
}

function getterProblems(at: Path, { type, ...parameters }: Getter, { getters }: Functions): string[] {
  const known = getters.get(type);
  if (!known) return [unknownName([...at, 'type'], 'getter', type, getters.keys())];
  return parameterProblems(at, known.parameters, parameters);
}

function expectedProblems(at: Path, expected: Getter | null, metric: MetricFunction, functions: Functions): string[] {
  const where = at.join('.');
  if (metric.expected === null) {
    return expected ? [`${where}: metric ${metric.name} compares with nothing; leave it out`] : [];
  }
  if (!expected) return [`${where}: metric ${metric.name} needs something to compare with; name a getter`];
  const problems = getterProblems(at, expected, functions);
  // What a rule says is known already; what any other getter gets is known in the guest only.
  if (problems.length > 0 || expected.type !== 'rule') return problems;
  return parameterProblems([...at, 'rules'], metric.expected, expected.rules);
}

function unknownName(at: Path, kind: string, name: string, known: Iterable<string>): string {
  return `${at.join('.')}: there is no ${kind} ${quote(name)}; known are ${[...known].sort().join(', ')}`;
}

function parameterProblems(at: Path, schema: z.ZodType, value: unknown): string[] {
  const read = readBy(schema, value, at);
  return read.ok ? [] : read.problems;
}
