import { z } from 'zod';
import { asText } from '../../command/text.ts';
import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';

const Rules = z.looseObject({ expected: z.array(z.string()).min(1) });

export const fileContains: MetricFunction<z.infer<typeof Rules>, NoOptions> = {
  name: 'file_contains',
  summary: 'A text file holds every text expected',
  expected: Rules,
  options: NoOptions,
  score(result, { expected }) {
    if (result === null) return 0;
    if (!Buffer.isBuffer(result)) throw new EvaluatorError(`file_contains looks into one file, got ${typeof result}`);
    const text = asText(result);
    return expected.every((part) => text.includes(part)) ? 1 : 0;
  },
};
