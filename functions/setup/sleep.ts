import { setTimeout as sleepFor } from 'node:timers/promises';
import { z } from 'zod';
import type { SetupFunction } from '../contract.ts';

const Parameters = z.strictObject({ seconds: z.number().min(0).max(3_600) });

export const sleep: SetupFunction<z.infer<typeof Parameters>> = {
  type: 'sleep',
  summary: 'Wait; the guest runs on',
  parameters: Parameters,
  async run({ seconds }, _guest, _context, signal) {
    await sleepFor(seconds * 1_000, undefined, { signal });
    return {};
  },
};
