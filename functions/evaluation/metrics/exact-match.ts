import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';

const Rules = z.looseObject({ expected: z.json() });

export const exactMatch: MetricFunction<z.infer<typeof Rules>, NoOptions> = {
  name: 'exact_match',
  summary: 'The result is what is expected, to the last character',
  expected: Rules,
  options: NoOptions,
  score(result, { expected }) {
    if (Buffer.isBuffer(result)) throw new EvaluatorError('exact_match compares values, not files: use file_contains');
    return isDeepStrictEqual(result, expected) ? 1 : 0;
  },
};
