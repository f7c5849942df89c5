import { z } from 'zod';
import type { CommandResult, Guest } from '../guest.ts';
import { GuestFileError } from '../guest.ts';
import { resolveGuestPath } from '../guest-path.ts';
import { splitWords, WordsError } from './words.ts';

/** True or false; some of OSWorld's tasks write it as a text. */
export const Flag = z
  .union([z.boolean(), z.enum(['true', 'True', 'false', 'False'])], 'must be true or false')
  .transform((value) => value === true || value === 'true' || value === 'True');

const Word = z.string().refine((word) => !word.includes('\0'), 'must not hold a NUL character');

/** OSWorld's commands have at most 7. */
const MOST_WORDS = 4_096;

/** How a job names a command: `command` a list of words, or a text to be split, or with `shell` a text for `/bin/sh`. */
export const commandFields = {
  command: z.union([Word.min(1), z.array(Word).min(1).max(MOST_WORDS)]),
  shell: Flag.default(false),
};

export interface CommandLine {
  command: string | string[];
  shell: boolean;
}

/** For `superRefine`: says of a text that cannot be split what is wrong with it. */
export function refineCommand({ command, shell }: CommandLine, refinement: z.RefinementCtx): void {
  if (shell || typeof command !== 'string') return;
  try {
    if (splitWords(command).length > 0) return;
    refinement.addIssue({ code: 'custom', path: ['command'], message: 'names no program' });
  } catch (error) {
    if (!(error instanceof WordsError)) throw error;
    refinement.addIssue({
      code: 'custom',
      path: ['command'],
      message: `${error.message}; give a list of words, or "shell": true`,
    });
  }
}

/**
 * The words to run in the guest. With `shell`, a list runs as Python's subprocess does it: its first word is the script,
 * the rest are the script's parameters.
 */
export function argvOf({ command, shell }: CommandLine, account: Guest['account']): string[] {
  if (shell) return ['/bin/sh', '-c', ...(typeof command === 'string' ? [command] : expandHomes(command, account))];
  return expandHomes(typeof command === 'string' ? splitWords(command) : command, account);
}

function expandHomes(words: readonly string[], account: Guest['account']): string[] {
  return words.map((word) => (word.startsWith('~/') ? resolveGuestPath(word, account) : word));
}

/** What a shell says of a program that is not there, or that may not be run. */
const NOT_FOUND = 127;
const NOT_EXECUTABLE = 126;

/**
 * Runs a command as the desktop user. A program that is not there is an answer like any other: exit code 127.
 * @throws GuestSilent
 */
export async function runCommand(
  guest: Guest,
  argv: string[],
  timeoutMs: number,
  signal: AbortSignal,
): Promise<CommandResult> {
  try {
    return await guest.exec({ argv, timeoutMs }, signal);
  } catch (error) {
    if (!(error instanceof GuestFileError)) throw error;
    return {
      returncode: error.code === 'EACCES' ? NOT_EXECUTABLE : NOT_FOUND,
      stdout: Buffer.alloc(0),
      stderr: Buffer.from(`${error.message}\n`),
      timedOut: false,
      truncated: false,
    };
  }
}
