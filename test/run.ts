import path from 'node:path';
import { execa } from 'execa';
import { asCliError } from '../runner/cli/explain.ts';
import { installForTests } from '../runner/cli/install.ts';
import { Interrupt } from '../runner/cli/interrupt.ts';
import { readConfig } from '../runner/host/config.ts';

const projectRoot = process.cwd();
const bin = (name: string): string => path.join(projectRoot, 'node_modules/.bin', name);

/** What reads the sources without running them, cheapest first. */
const STATIC_CHECKS: readonly { what: string; command: string; args: string[] }[] = [
  { what: 'types', command: bin('tsc'), args: ['--noEmit', '-p', 'tsconfig.json'] },
  { what: 'lint and format', command: bin('biome'), args: ['check', '--error-on-warnings', '.'] },
  { what: 'dead code', command: bin('knip'), args: [] },
];

/**
 * Installs what is missing, then runs every check; with arguments, only the tests they choose.
 * @param args for vitest @returns exit code
 */
export async function runChecks(args: readonly string[]): Promise<number> {
  try {
    return await runAll(args);
  } catch (error) {
    const explained = asCliError(error);
    if (explained === null) throw error;
    console.error(`gymbus: ${explained.message}`);
    return explained.exitCode;
  }
}

async function runAll(args: readonly string[]): Promise<number> {
  using interrupt = new Interrupt();
  const { signal } = interrupt;
  const run = async (
    command: string,
    commandArgs: readonly string[],
    env: Record<string, string> = {},
  ): Promise<boolean> => {
    // A group of its own would outlive a Ctrl-C; in ours it gets the signal with us.
    const { failed } = await execa(command, commandArgs, {
      stdio: 'inherit',
      reject: false,
      env,
      cancelSignal: signal,
    });
    return !failed;
  };
  let sound = true;
  if (args.length === 0) {
    for (const { what, command, args: commandArgs } of STATIC_CHECKS) {
      console.log(`\ncheck: ${what}`);
      const passed = await run(command, commandArgs);
      console.log(passed ? `${what}: fine` : `${what}: FAILED`);
      sound &&= passed;
    }
  }
  const { kvm } = await installForTests(readConfig(process.env), signal);
  console.log('\ncheck: tests');
  const tests = await run(bin('vitest'), ['run', '--config', 'test/vitest.config.ts', ...args], {
    GYMBUS_TEST_KVM: kvm ? 'yes' : 'no',
  });
  if (!sound) console.error('\na static check failed; see above');
  return sound && tests ? 0 : 1;
}
