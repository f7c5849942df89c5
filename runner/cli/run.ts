import { Command } from 'commander';
import { CONFIGURATION } from '../host/config.ts';
import { createLog } from '../host/log.ts';
import { configOf } from './client.ts';
import { bucketOf } from './image-pull.ts';
import { imagesFor } from './images.ts';
import { Interrupt } from './interrupt.ts';
import { watchNpm } from './parent-watch.ts';
import { startRunnerForCli, untilStopped } from './run-until-stopped.ts';
import { VERSIONS } from './version.ts';

export const runCommand = new Command('run')
  .description('Run a runner on this host, against any NATS and S3')
  .option('--create-bucket', 'make the bucket when it is missing')
  .addHelpText(
    'after',
    () =>
      `\nConfiguration, by environment:\n${configurationHelp()}\n\nSIGTERM or Ctrl-C drains; a second one gives jobs back at once.`,
  )
  .action(async (options: { createBucket?: boolean }) => {
    const config = configOf(process.env);
    const log = createLog(config.log);
    using interrupt = new Interrupt();
    const images = await imagesFor(config, bucketOf(config, log, interrupt.signal));
    using _npm = await watchNpm(() => interrupt.fail('the npm that started this is gone'));
    const runner = await startRunnerForCli(
      { config, images, log, versions: VERSIONS, createBucket: options.createBucket ?? false },
      interrupt,
    );
    await untilStopped(runner, interrupt);
  });

/** The variables, what they are for and their defaults, as the schema says. */
function configurationHelp(): string {
  return Object.entries(CONFIGURATION)
    .map(([name, schema]) => {
      const fallback = schema.safeParse(undefined);
      const value = fallback.success && fallback.data !== undefined ? ` [${String(fallback.data)}]` : '';
      return `  ${name.padEnd(24)} ${schema.description ?? ''}${value}`;
    })
    .join('\n');
}
