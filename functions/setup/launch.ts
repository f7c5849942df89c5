import { z } from 'zod';
import { argvOf, commandFields, refineCommand } from '../command/command-line.ts';
import { SetupError, type SetupFunction } from '../contract.ts';
import { GuestFileError } from '../guest.ts';

const Parameters = z.strictObject(commandFields).superRefine(refineCommand);
type Parameters = z.infer<typeof Parameters>;

export const launch: SetupFunction<Parameters> = {
  type: 'launch',
  summary: 'Start a program on the desktop and leave it running',
  parameters: Parameters,
  async run(parameters, guest, _context, signal) {
    const argv = argvOf(parameters, guest.account);
    try {
      return { pid: await guest.spawn({ argv }, signal) };
    } catch (error) {
      if (!(error instanceof GuestFileError)) throw error;
      throw new SetupError(`the image has no program ${JSON.stringify(argv[0])} to launch (${error.code})`, {
        cause: error,
      });
    }
  },
};
