import type { z } from 'zod';
import { type Getter, quote, readBy, type SetupStep, type TrajectoryJob } from '../schemas/index.ts';
import type { MetricFunction } from './contract.ts';
import { INFEASIBLE } from './evaluation/metrics/infeasible.ts';
import { type Check, planOf } from './evaluation/plan.ts';
import { hostProblems } from './network/hosts.ts';
import { builtinFunctions, type Functions } from './registry.ts';

/**
 * What is wrong with a job beyond its shape: functions that are not there, parameters they do not take, what this
 * version does not offer. Touches nothing; asked before a guest is.
 * @param allowedHosts that the policy of its image lets jobs ask for; null where the image is not known
 * @returns one line a problem, each with the field, the value and the remedy; none when the job can be played
 */
export function checkJob(
  job: TrajectoryJob,
  functions: Functions = builtinFunctions,
  allowedHosts: readonly string[] | null = null,
): string[] {
  return [
    ...policyProblems(job, functions),
    ...job.setup.flatMap((step, index) => setupProblems(['setup', index], step, job, functions)),
    ...evaluatorProblems(job, functions),
    ...(job.observation.a11y_tree
      ? ['observation.a11y_tree: this version takes no accessibility trees (got true); set it to false or leave it out']
      : []),
    ...(allowedHosts ? hostProblems(job.network?.hosts ?? [], { name: job.image, allows: allowedHosts }) : []),
  ];
}

type Path = readonly (string | number)[];

function policyProblems({ policy }: TrajectoryJob, { policies }: Functions): string[] {
  const known = policies.get(policy.name);
  if (!known) return [unknownName(['policy', 'name'], 'policy', policy.name, policies.keys())];
  return parameterProblems(['policy', 'params'], known.params, policy.params);
}

function setupProblems(at: Path, step: SetupStep, job: TrajectoryJob, { setups }: Functions): string[] {
  const known = setups.get(step.type);
  if (!known) return [unknownName([...at, 'type'], 'set-up type', step.type, setups.keys())];
  const here = [...at, 'parameters'];
  const problems = parameterProblems(here, known.parameters, step.parameters);
  if (problems.length > 0 || !known.check) return problems;
  return known.check(known.parameters.parse(step.parameters), job).map((problem) => `${here.join('.')}.${problem}`);
}

function evaluatorProblems(job: TrajectoryJob, functions: Functions): string[] {
  const { evaluator } = job;
  if (!evaluator) return [];
  const postconfig = evaluator.postconfig.flatMap((step, index) =>
    setupProblems(['evaluator', 'postconfig', index], step, job, functions),
  );
  if (evaluator.func === INFEASIBLE) return postconfig;
  const { checks, problems } = planOf(evaluator);
  if (problems.length > 0) return [...postconfig, ...problems.map((problem) => `evaluator.${problem}`)];
  const many = Array.isArray(evaluator.func);
  return [...postconfig, ...checks.flatMap((check, index) => checkProblems(check, many ? [index] : [], functions))];
}

/** @param place of the check in the evaluator's lists, empty where there are none */
function checkProblems(check: Check, place: Path, functions: Functions): string[] {
  const field = (name: string): Path => ['evaluator', name, ...place];
  if (check.func === INFEASIBLE) {
    return [
      `${field('func').join('.')}: "${INFEASIBLE}" looks at no result and stands alone: write "func": "${INFEASIBLE}"`,
    ];
  }
  const metric = functions.metrics.get(check.func);
  if (!metric) return [unknownName(field('func'), 'metric', check.func, [...functions.metrics.keys(), INFEASIBLE])];
  return [
    ...(check.result
      ? getterProblems(field('result'), check.result, functions)
      : [`${field('result').join('.')}: metric ${check.func} needs a result to look at; name a getter`]),
    ...expectedProblems(field('expected'), check.expected, metric, functions),
    ...parameterProblems(field('options'), metric.options, check.options),
  ];
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
