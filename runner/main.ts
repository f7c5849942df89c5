import { Command } from 'commander';
import { CliError } from './cli/error.ts';
import { commands } from './cli/index.ts';
import { VERSION } from './cli/version.ts';

const program = new Command('gymbus')
  .description(
    'Computer-use-agent episodes at scale: jobs on NATS JetStream, warm desktop virtual machines, trajectories in S3',
  )
  .version(VERSION)
  .showHelpAfterError('(gymbus --help lists the commands)')
  .configureHelp({ sortSubcommands: false, showGlobalOptions: true });
for (const command of commands) program.addCommand(command);

try {
  await program.parseAsync();
} catch (error) {
  if (!(error instanceof CliError)) throw error;
  console.error(`gymbus: ${error.message}`);
  process.exitCode = error.exitCode;
}
