import { z } from 'zod';
import { occurring } from '../../command/search.ts';
import { textPieces } from '../../command/text.ts';
import { EvaluatorError, type MetricFunction } from '../../contract.ts';
import { NoOptions } from './options.ts';
import { Texts } from './texts.ts';

const Rules = z.looseObject({ expected: Texts.min(1) });

export const fileContains: MetricFunction<z.infer<typeof Rules>, NoOptions> = {
  name: 'file_contains',
  summary: 'A text file holds every text expected',
  expected: Rules,
  options: NoOptions,
  async score(result, { expected }, _options, signal) {
    if (result === null) return 0;
    if (!Buffer.isBuffer(result)) throw new EvaluatorError(`file_contains looks into one file, got ${typeof result}`);
    const held = await occurring(expected, textPieces(result), signal);
    return expected.every((text) => held.has(text)) ? 1 : 0;
  },
};
