import { z } from 'zod';
import { argvOf, commandFields, refineCommand, runCommand } from '../../command/command-line.ts';
import { asText } from '../../command/text.ts';
import { EvaluatorError, type GetterFunction } from '../../contract.ts';

/** How long OSWorld's guests let a command run. */
const DEFAULT_TIMEOUT_S = 120;

const Parameters = z
  .strictObject({ ...commandFields, timeout: z.number().positive().max(3_600).default(DEFAULT_TIMEOUT_S) })
  .superRefine(refineCommand);

/** What the command prints, whatever its exit code. */
export const vmCommandLine: GetterFunction<z.infer<typeof Parameters>> = {
  type: 'vm_command_line',
  summary: 'What a command prints in the guest',
  parameters: Parameters,
  async get(parameters, guest, { budget }, signal) {
    const result = await runCommand(guest, argvOf(parameters, guest.account), parameters.timeout * 1_000, signal);
    if (result.timedOut) throw new EvaluatorError(`the command gave no answer within ${parameters.timeout} s`);
    if (result.truncated) {
      throw new EvaluatorError(`the command printed more than is kept (${result.stdout.length} bytes): filter it`);
    }
    budget.take(result.stdout.length);
    return asText(result.stdout);
  },
};
