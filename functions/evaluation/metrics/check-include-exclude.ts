import { z } from 'zod';
import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';

const Texts = z.array(z.string()).default([]);
/** Strict, and not empty: a misspelt rule would be met by everything. */
const Rules = z
  .strictObject({ include: Texts, exclude: Texts })
  .refine(({ include, exclude }) => include.length + exclude.length > 0, 'names nothing to include or exclude');

export const checkIncludeExclude: MetricFunction<z.infer<typeof Rules>, NoOptions> = {
  name: 'check_include_exclude',
  summary: 'The result holds every text of include and none of exclude',
  expected: Rules,
  options: NoOptions,
  score(result, { include, exclude }) {
    if (result === null) return 0;
    if (typeof result !== 'string' && !Array.isArray(result)) {
      throw new EvaluatorError(`check_include_exclude looks into a text or a list, got ${typeof result}`);
    }
    const holds = (text: string): boolean => result.includes(text);
    return include.every(holds) && !exclude.some(holds) ? 1 : 0;
  },
};
