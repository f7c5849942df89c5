import { z } from 'zod';
import { Action } from '../../schemas/index.ts';
import type { PolicyFunction } from '../contract.ts';

const Params = z.strictObject({
  actions: z
    .array(z.union([Action, z.array(Action).min(1)]))
    .max(1_000)
    .describe('One entry a step: an action, or a list of them sent together'),
});

export const scripted: PolicyFunction<z.infer<typeof Params>> = {
  name: 'scripted',
  version: '1',
  summary: 'Actions written in the job, one entry a step',
  params: Params,
  create({ actions }) {
    return {
      async act({ step }) {
        const entry = actions[step - 1];
        return entry === undefined ? null : { actions: Array.isArray(entry) ? entry : [entry] };
      },
    };
  },
};
