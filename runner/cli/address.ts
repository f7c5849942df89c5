import { ATTEMPT_ID_PATTERN, ID_PATTERN, quote } from '../../schemas/index.ts';
import { CliError, EXIT } from './error.ts';

/** Checks a batch's id as given on the command line. */
export function parseBatch(text: string): string {
  if (ID_PATTERN.test(text)) return text;
  throw new CliError(`${quote(text)} is no batch id: 1 to 64 characters of A-Z a-z 0-9 _ -`, EXIT.usage);
}

/** Reads `BATCH/JOB`. */
export function parseJobAddress(text: string): { batch: string; job: string } {
  const [batch, job, ...rest] = text.split('/');
  if (batch && job && rest.length === 0 && ID_PATTERN.test(batch) && ID_PATTERN.test(job)) return { batch, job };
  throw new CliError(
    `${quote(text)} names no job: write BATCH/JOB, each of 1 to 64 characters of A-Z a-z 0-9 _ -`,
    EXIT.usage,
  );
}

/** Checks an attempt's id as given on the command line. */
export function parseAttempt(text: string): string {
  if (ATTEMPT_ID_PATTERN.test(text)) return text;
  throw new CliError(
    `${quote(text)} is no attempt: write it as results and folders name it, e.g. 1-k3x9q2mv`,
    EXIT.usage,
  );
}

/** An empty word, as an unset variable leaves it, would be the folder one is in. */
export function parseFolder(text: string): string {
  if (text !== '') return text;
  throw new CliError('"" is no folder: name one, or . for the one you are in', EXIT.usage);
}
