import { Command } from 'commander';
import { commands } from './index.ts';
import { VERSION } from './version.ts';

const EXIT_CODES = `
Exit codes: 0 done; 1 the answer is no, or something it needs is not there; 2 called wrongly; 130 interrupted.
gymbus run --help lists the environment variables that all commands read.`;

/** The whole command line. Throws commander's errors instead of ending the process. */
export function gymbusCommand(): Command {
  const program = new Command('gymbus')
    .description(
      'Computer-use-agent episodes at scale: jobs on NATS JetStream, warm desktop virtual machines, trajectories in S3',
    )
    .version(VERSION)
    .configureHelp({ sortSubcommands: false })
    .addHelpText('after', EXIT_CODES);
  for (const command of commands) program.addCommand(command);
  prepare(program, 'gymbus');
  return program;
}

/** Added commands inherit nothing: each is told. */
function prepare(command: Command, name: string): void {
  command
    .exitOverride()
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, 'gymbus: ')) })
    .showHelpAfterError(`(${name} --help says how it is called)`);
  for (const inner of command.commands) prepare(inner, `${name} ${inner.name()}`);
}
