import path from 'node:path';
import { Command } from 'commander';
import { objectKeys } from '../../schemas/index.ts';
import { type AttemptInfo, downloadAttempt, listAttempts } from '../storage/reader.ts';
import type { ObjectStore } from '../storage/s3.ts';
import { makeFolder } from '../system/make-folder.ts';
import { parseAttempt, parseFolder, parseJobAddress } from './address.ts';
import { openClientStore, storeConfig } from './client.ts';
import { CliError, EXIT } from './error.ts';
import { Interrupt } from './interrupt.ts';
import { progressView } from './progress.ts';

export const getCommand = new Command('get')
  .description("Download a job's trajectory and check every file against the manifest's hashes")
  .argument('<batch/job>', 'the job', parseJobAddress)
  .argument('[dir]', 'where to; by default ./BATCH/JOB', parseFolder)
  .option('--attempt <id>', 'an attempt other than the last finished one', parseAttempt)
  .addHelpText(
    'after',
    '\nFiles that are there with the right hash are kept, so a download that broke off goes on where it was.',
  )
  .action(async (address: { batch: string; job: string }, dir: string | undefined, options: { attempt?: string }) => {
    const { batch, job } = address;
    using interrupt = new Interrupt();
    const { signal } = interrupt;
    using store = openClientStore(await storeConfig());
    const attempts = await listAttempts(store, batch, job, { signal });
    const chosen = chooseAttempt(attempts, options.attempt);
    if (!chosen) throw new CliError(notThere(store, address, attempts, options.attempt));
    const directory = path.resolve(dir ?? path.join(batch, job));
    await makeTarget(directory);
    const view = progressView(`${batch}/${job}`);
    view.report({ phase: 'downloading', fraction: 0, message: `downloading attempt ${chosen.attempt}` });
    try {
      const report = await downloadAttempt(store, chosen.prefix, directory, {
        signal,
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

/** @throws CliError when there can be no such folder */
async function makeTarget(directory: string): Promise<void> {
  try {
    await makeFolder(directory);
  } catch (error) {
    const { code, path: file = directory } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST')
      throw new CliError(`${file} is a file: name a folder to download to`, EXIT.no, { cause: error });
    throw new CliError(`cannot make the folder ${file} (${code}): name another one`, EXIT.no, { cause: error });
  }
}

/** The one asked for, else the last that is finished, else the last. */
function chooseAttempt(attempts: readonly AttemptInfo[], asked: string | undefined): AttemptInfo | undefined {
  if (asked !== undefined) return attempts.find(({ attempt }) => attempt === asked);
  return attempts.findLast(({ finished }) => finished) ?? attempts.at(-1);
}

function notThere(
  store: ObjectStore,
  { batch, job }: { batch: string; job: string },
  attempts: readonly AttemptInfo[],
  asked: string | undefined,
): string {
  const place = store.url(objectKeys.job(batch, job));
  if (attempts.length === 0) {
    return `there is no trajectory at ${place}; gymbus watch ${batch} shows what waits, gymbus results ${batch} what is done`;
  }
  return `there is no attempt ${asked} at ${place}; there are ${attempts.map(({ attempt }) => attempt).join(', ')}`;
}
