import { execa } from 'execa';
import { gymbusCommand } from './runner-process.ts';

const COMMAND_MS = 120_000;

export interface Ended {
  exitCode: number | undefined;
  stdout: string;
  stderr: string;
}

/** Runs a `gymbus` command to its end, its output in pipes. */
export async function runGymbus(
  args: readonly string[],
  env: Record<string, string>,
  { input, cwd }: { input?: string; cwd?: string } = {},
): Promise<Ended> {
  const { exitCode, stdout, stderr } = await execa(process.execPath, [gymbusCommand, ...args], {
    ...{ env, reject: false, timeout: COMMAND_MS },
    ...(input === undefined ? { stdin: 'ignore' as const } : { input }),
    ...(cwd === undefined ? {} : { cwd }),
  });
  return { exitCode, stdout, stderr };
}
