import { z } from 'zod';
import { occurring } from '../../command/search.ts';
import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';
import { Texts } from './texts.ts';

/** Strict, and not empty: a misspelt rule would be met by everything. */
const Rules = z
  .strictObject({ include: Texts.default([]), exclude: Texts.default([]) })
  .refine(({ include, exclude }) => include.length + exclude.length > 0, 'names nothing to include or exclude');

export const checkIncludeExclude: MetricFunction<z.infer<typeof Rules>, NoOptions> = {
  name: 'check_include_exclude',
  summary: 'The result holds every text of include and none of exclude',
  expected: Rules,
  options: NoOptions,
  async score(result, { include, exclude }, _options, signal) {
    if (result === null) return 0;
    if (typeof result !== 'string' && !Array.isArray(result)) {
      throw new EvaluatorError(`check_include_exclude looks into a text or a list, got ${typeof result}`);
    }
    const held: ReadonlySet<unknown> =
      typeof result === 'string' ? await occurring([...include, ...exclude], [result], signal) : new Set(result);
    return include.every((text) => held.has(text)) && !exclude.some((text) => held.has(text)) ? 1 : 0;
  },
};
