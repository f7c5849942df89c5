import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { argvOf, commandFields, refineCommand, runCommand } from '../command/command-line.ts';
import { fillPlaceholders } from '../command/placeholders.ts';
import { occurring } from '../command/search.ts';
import { asText } from '../command/text.ts';
import { SetupError, type SetupFunction, type SetupRecord } from '../contract.ts';
import type { Guest } from '../guest.ts';

/** How long OSWorld's guests let a command run. */
const DEFAULT_TIMEOUT_S = 120;
/** OSWorld's pause between the runs of a command that is repeated until it says what is awaited. */
const UNTIL_PAUSE_MS = 300;
/** Enough to see what went wrong; a command that prints much does not swell the record. */
const RECORDED_CHARACTERS = 16_384;

/** Looked for in all that a run prints, again and again. */
const MOST_AWAITED = 16_384;

const Until = z.strictObject({
  returncode: z.number().int().optional(),
  stdout: z.string().max(MOST_AWAITED).optional(),
  stderr: z.string().max(MOST_AWAITED).optional(),
});

const Parameters = z
  .strictObject({
    ...commandFields,
    timeout: z.number().positive().max(3_600).default(DEFAULT_TIMEOUT_S).describe('Seconds for one run'),
    until: Until.optional().describe('Repeat until one of these holds: the exit code, or a text in what is printed'),
    expected_returncodes: z.array(z.number().int()).min(1).max(256).optional(),
    stdout: z.string().max(256).optional().describe('Cache-file name for what is printed'),
    stderr: z.string().max(256).optional().describe('Cache-file name for what is printed as errors'),
  })
  .superRefine(refineCommand);
type Parameters = z.infer<typeof Parameters>;

async function run(parameters: Parameters, guest: Guest, signal: AbortSignal): Promise<SetupRecord> {
  const { command } = parameters;
  const filled =
    typeof command === 'string'
      ? fillPlaceholders(command, guest)
      : command.map((word) => fillPlaceholders(word, guest));
  const argv = argvOf({ command: filled, shell: parameters.shell }, guest.account);

  for (let runs = 1; ; runs++) {
    const result = await runCommand(guest, argv, parameters.timeout * 1_000, signal);
    const stdout = asText(result.stdout);
    const stderr = asText(result.stderr);
    const record: SetupRecord = {
      returncode: result.returncode,
      stdout: stdout.slice(0, RECORDED_CHARACTERS),
      stderr: stderr.slice(0, RECORDED_CHARACTERS),
      runs,
      ...(parameters.stdout === undefined ? {} : { stdout_file: parameters.stdout }),
      ...(parameters.stderr === undefined ? {} : { stderr_file: parameters.stderr }),
    };
    if (result.timedOut) {
      throw new SetupError(`the command ran longer than ${parameters.timeout} s; raise "timeout", or use "launch"`, {
        record,
      });
    }
    if (!(await holds(parameters.until, { returncode: result.returncode, stdout, stderr }, signal))) {
      await sleep(UNTIL_PAUSE_MS, undefined, { signal });
      continue;
    }
    const expected = parameters.expected_returncodes;
    if (expected && !expected.includes(result.returncode)) {
      const said = stderr.trim().slice(-200);
      throw new SetupError(
        `exit code ${result.returncode}, expected ${expected.join(' or ')}${said === '' ? '' : `: ${said}`}`,
        { record },
      );
    }
    return record;
  }
}

/** As OSWorld reads it: any one of the conditions is enough, and none given is met at once. */
async function holds(
  until: Parameters['until'],
  { returncode, stdout, stderr }: { returncode: number; stdout: string; stderr: string },
  signal: AbortSignal,
): Promise<boolean> {
  if (until === undefined || Object.keys(until).length === 0) return true;
  const says = async (awaited: string | undefined, printed: string): Promise<boolean> =>
    awaited !== undefined && (await occurring([awaited], [printed], signal)).has(awaited);
  return returncode === until.returncode || (await says(until.stdout, stdout)) || (await says(until.stderr, stderr));
}

export const execute: SetupFunction<Parameters> = {
  type: 'execute',
  summary: 'Run a command as the desktop user and wait for it',
  parameters: Parameters,
  run: (parameters, guest, _context, signal) => run(parameters, guest, signal),
};

/** OSWorld's other name for it. */
export const command: SetupFunction<Parameters> = { ...execute, type: 'command' };
