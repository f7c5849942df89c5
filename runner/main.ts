import { CommanderError } from 'commander';
import { EXIT } from './cli/error.ts';
import { asCliError } from './cli/explain.ts';
import { gymbusCommand } from './cli/program.ts';

// Who reads our output may have read enough: `gymbus results BATCH | head`.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.ok);
  console.error(`gymbus: cannot write what it found (${error.code}): what was written is not the whole`);
  process.exit(EXIT.no);
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
// A write that failed is told after the present turn.
await new Promise((resolve) => setImmediate(resolve));
// All is released by now. A connection that nobody answers, which a client forgot rather than closed, keeps nobody here.
process.exit();
