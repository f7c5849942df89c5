import type { GetterFunction, MetricFunction, PolicyFunction, SetupFunction } from './contract.ts';
import { rule } from './evaluation/getters/rule.ts';
import { vmCommandLine } from './evaluation/getters/vm-command-line.ts';
import { vmFile } from './evaluation/getters/vm-file.ts';
import { checkIncludeExclude } from './evaluation/metrics/check-include-exclude.ts';
import { exactMatch } from './evaluation/metrics/exact-match.ts';
import { fileContains } from './evaluation/metrics/file-contains.ts';
import { INFEASIBLE } from './evaluation/metrics/infeasible.ts';
import { isUtc0 } from './evaluation/metrics/is-utc-0.ts';
import { random } from './policies/random.ts';
import { scripted } from './policies/scripted.ts';
import { download } from './setup/download.ts';
import { command, execute } from './setup/execute.ts';
import { launch } from './setup/launch.ts';
import { sleep } from './setup/sleep.ts';
import { uploadFile } from './setup/upload-file.ts';

/** Every function a job may name, by the name it names them with. */
export interface Functions {
  readonly policies: ReadonlyMap<string, PolicyFunction>;
  readonly setups: ReadonlyMap<string, SetupFunction>;
  readonly getters: ReadonlyMap<string, GetterFunction>;
  readonly metrics: ReadonlyMap<string, MetricFunction>;
}

/** @throws when two of a kind share a name */
export function functionTable(known: {
  policies: readonly PolicyFunction[];
  setups: readonly SetupFunction[];
  getters: readonly GetterFunction[];
  metrics: readonly MetricFunction[];
}): Functions {
  return {
    policies: byName(known.policies, ({ name }) => name),
    setups: byName(known.setups, ({ type }) => type),
    getters: byName(known.getters, ({ type }) => type),
    metrics: byName(known.metrics, ({ name }) => name),
  };
}

function byName<F>(functions: readonly F[], nameOf: (item: F) => string): ReadonlyMap<string, F> {
  const table = new Map(functions.map((item) => [nameOf(item), item]));
  if (table.size !== functions.length)
    throw new Error(`two functions share a name: ${functions.map(nameOf).join(', ')}`);
  return table;
}

export const builtinFunctions: Functions = functionTable({
  policies: [random, scripted],
  setups: [command, download, execute, launch, sleep, uploadFile],
  getters: [rule, vmCommandLine, vmFile],
  metrics: [checkIncludeExclude, exactMatch, fileContains, isUtc0],
});

/** As a runner's heartbeat lists them: `policy:scripted`, `setup:execute`, `getter:rule`, `metric:exact_match`. */
export function functionNames(functions: Functions = builtinFunctions): string[] {
  const named = (kind: string, names: Iterable<string>): string[] => [...names].map((name) => `${kind}:${name}`);
  return [
    ...named('policy', functions.policies.keys()),
    ...named('setup', functions.setups.keys()),
    ...named('getter', functions.getters.keys()),
    ...named('metric', [...functions.metrics.keys(), INFEASIBLE]),
  ];
}
