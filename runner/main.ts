import { CommanderError } from 'commander';
import { EXIT } from './cli/error.ts';
import { asCliError } from './cli/explain.ts';
import { gymbusCommand } from './cli/program.ts';

// Who reads our output may have read enough: `gymbus results BATCH | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(EXIT.ok);
});

try {
  await gymbusCommand().parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    // Help and version were printed, or what is wrong with the call.
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    const explained = asCliError(error);
    if (explained === null) throw error;
    console.error(`gymbus: ${explained.message}`);
    process.exitCode = explained.exitCode;
  }
}
// All is released by now. A connection that nobody answers, which a client forgot rather than closed, keeps nobody here.
process.exit();
