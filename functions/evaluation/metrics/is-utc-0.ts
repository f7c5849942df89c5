import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';

/** Reads the `Time zone:` line of `timedatectl status`, e.g. `Time zone: Etc/UTC (UTC, +0000)`. */
export const isUtc0: MetricFunction<unknown, NoOptions> = {
  name: 'is_utc_0',
  summary: 'The time zone printed by timedatectl has no offset from UTC',
  expected: null,
  options: NoOptions,
  score(result) {
    if (typeof result !== 'string') throw new EvaluatorError(`is_utc_0 reads a text, got ${typeof result}`);
    const line = result.split('\n').find((text) => /^\s*Time zone:/.test(text));
    if (line === undefined) {
      throw new EvaluatorError(`is_utc_0 found no "Time zone:" in ${JSON.stringify(result.slice(0, 200))}`);
    }
    return line.trimEnd().endsWith('+0000)') ? 1 : 0;
  },
};
