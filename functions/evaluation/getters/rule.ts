import { z } from 'zod';
import type { GetterFunction } from '../../contract.ts';

const Parameters = z.strictObject({ rules: z.json() });

/** A value written in the job. */
export const rule: GetterFunction<z.infer<typeof Parameters>> = {
  type: 'rule',
  summary: 'A value written in the job',
  parameters: Parameters,
  get: async ({ rules }) => rules,
};
