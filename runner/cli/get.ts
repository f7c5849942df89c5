import path from 'node:path';
import { Command } from 'commander';
import { downloadAttempt, listAttempts } from '../storage/reader.ts';
import { parseJobAddress } from './address.ts';
import { clientConfig, openClientStore } from './client.ts';
import { CliError } from './error.ts';
import { progressView } from './progress.ts';

export const getCommand = new Command('get')
  .description("Download a job's trajectory and check every file against the manifest's hashes")
  .argument('<batch/job>', 'the job', parseJobAddress)
  .argument('[dir]', 'where to; by default ./BATCH/JOB')
  .option('--attempt <id>', 'an attempt other than the last finished one')
  .addHelpText(
    'after',
    '\nFiles that are there with the right hash are kept, so a download that broke off goes on where it was.',
  )
  .action(async (address: { batch: string; job: string }, dir: string | undefined, options: { attempt?: string }) => {
    const { batch, job } = address;
    using store = openClientStore(await clientConfig());
    const attempts = await listAttempts(store, batch, job);
    const chosen = options.attempt
      ? attempts.find(({ attempt }) => attempt === options.attempt)
      : (attempts.findLast(({ finished }) => finished) ?? attempts.at(-1));
    if (!chosen) {
      const there = attempts.length > 0 ? `; there are ${attempts.map(({ attempt }) => attempt).join(', ')}` : '';
      throw new CliError(`${store.url('')} has no attempt ${options.attempt ?? ''} of ${batch}/${job}${there}`);
    }
    const directory = path.resolve(dir ?? path.join(batch, job));
    const view = progressView(`${batch}/${job}`);
    try {
      const report = await downloadAttempt(store, chosen.prefix, directory, {
        onProgress: ({ bytes, bytesTotal, files, filesTotal }) =>
          view.report({
            phase: 'downloading',
            fraction: bytesTotal === 0 ? 1 : bytes / bytesTotal,
            message: `${files} of ${filesTotal} files`,
          }),
      });
      view.stop();
      console.error(
        `attempt ${chosen.attempt}${report.finished ? '' : ' (unfinished)'}: ${report.files} files, ${report.bytes} bytes, ${report.verified} verified, ${report.kept} were there`,
      );
      console.log(directory);
    } finally {
      view.stop();
    }
  });
