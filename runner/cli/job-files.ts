import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import { checkJob } from '../../functions/check-job.ts';
import { OsworldTaskError, osworldTaskToJob } from '../../functions/osworld/task.ts';
import { JOB_SCHEMA, parseJob, printable, type TrajectoryJobInput } from '../../schemas/index.ts';
import type { JobToPublish } from '../bus/publisher.ts';
import { CliError, cut, EXIT } from './error.ts';

/** A job that is sound as far as it says itself. */
export interface CheckedJob extends JobToPublish {
  /** That it asks for. */
  hosts: readonly string[];
}

/** What a line is told that cannot be read at all. */
const NO_JSON = ': not UTF-8 JSON: ';

/** Problems shown of one file; a thousand lines with the same fault need not be told a thousand times. */
const MOST_SHOWN = 20;

/**
 * Reads jobs, one JSON object a line or a single one over many, and checks each before any is published.
 * @param file a path, or `-` for standard input
 * @throws CliError that names each wrong line with its field, value and remedy
 */
export async function readJobLines(file: string): Promise<CheckedJob[]> {
  const lines = (folder: string): string =>
    `pass on what is in it: cat ${path.join(folder, '*.jsonl')} | gymbus submit -`;
  const content = await readText(file, lines);
  const jobs: CheckedJob[] = [];
  const problems: string[] = [];
  const places = new Map<string, string>();
  for (const { place, text } of jobTexts(file, content)) {
    const checked = checkedJob(Buffer.from(text));
    if (Array.isArray(checked)) problems.push(...checked.map((problem) => `${place}: ${problem}`));
    else problems.push(...addOnce(jobs, checked, place, places));
  }
  if (problems.length > 1 && problems.every((problem) => problem.includes(NO_JSON))) {
    const from = file === '-' ? '' : ` ${file}`;
    throw new CliError(
      `${nameOf(file)} has no job a line, and is not one job over many: \`jq -c .${from} | gymbus submit -\` makes lines of several\n  ${problems[0]}`,
      EXIT.usage,
    );
  }
  refuseProblems(problems, 'nothing was published');
  if (jobs.length === 0) throw new CliError(`${nameOf(file)} holds no job: one JSON object a line`, EXIT.usage);
  return jobs;
}

/** Each job as it is written, and where. @throws CliError when it is a list, which has to be taken apart */
function jobTexts(file: string, content: string): { place: string; text: string }[] {
  const lines = content
    .split('\n')
    .map((text, index) => ({ place: `${file}:${index + 1}`, text }))
    .filter(({ text }) => text.trim() !== '');
  let whole: unknown;
  try {
    whole = JSON.parse(content);
  } catch {
    return lines;
  }
  if (Array.isArray(whole)) {
    const from = file === '-' ? '' : ` ${file}`;
    throw new CliError(
      `${nameOf(file)} is one list of ${whole.length}; give each job a line: jq -c '.[]'${from} | gymbus submit -`,
      EXIT.usage,
    );
  }
  return lines.length > 1 ? [{ place: file, text: content.trim() }] : lines;
}

function nameOf(file: string): string {
  return file === '-' ? 'standard input' : file;
}

/**
 * Makes a job of each OSWorld task file, as it is. The folder a task lies in is its domain, as OSWorld lays them out.
 * @throws CliError
 */
export async function readOsworldTasks(
  files: readonly string[],
  options: { batch: string; policy: TrajectoryJobInput['policy']; image?: string | undefined },
): Promise<CheckedJob[]> {
  const jobs: CheckedJob[] = [];
  const problems: string[] = [];
  const places = new Map<string, string>();
  for (const file of files) {
    try {
      const job = osworldTaskToJob(
        JSON.parse(await readText(file, (folder) => `name the tasks in it: --osworld ${path.join(folder, '*.json')}`)),
        {
          batchId: options.batch,
          policy: options.policy,
          domain: path.basename(path.dirname(path.resolve(file))),
          ...(options.image === undefined ? {} : { image: options.image }),
        },
      );
      const checked = checkedJob(Buffer.from(JSON.stringify(job)));
      if (Array.isArray(checked)) problems.push(...checked.map((problem) => `${file}: ${problem}`));
      else problems.push(...addOnce(jobs, checked, file, places));
    } catch (error) {
      if (error instanceof SyntaxError) problems.push(`${file}: not JSON: ${printable(error.message)}`);
      else if (error instanceof OsworldTaskError) problems.push(`${file}: ${error.message}`);
      else throw error;
    }
  }
  refuseProblems(problems, 'nothing was published');
  return jobs;
}

function checkedJob(data: Buffer): CheckedJob | string[] {
  const parsed = parseJob(data);
  if (parsed.kind === 'newer')
    return [`schema: ${parsed.version} is for a later gymbus than this, which reads ${JOB_SCHEMA}; update it`];
  if (parsed.kind === 'invalid') return [parsed.reason];
  const { image, batch_id, job_id, network } = parsed.job;
  const problems = checkJob(parsed.job);
  if (problems.length > 0) return problems;
  return { address: { image, batch: batch_id, job: job_id }, data, hosts: network?.hosts ?? [] };
}

/** The bus would keep the first of two with the same identity and drop the other. @returns what is wrong with it */
function addOnce(jobs: CheckedJob[], job: CheckedJob, place: string, places: Map<string, string>): string[] {
  const identity = `${job.address.batch}/${job.address.job}`;
  const first = places.get(identity);
  if (first !== undefined)
    return [`${place}: ${identity} is at ${first} already; give each job of a batch its own job_id`];
  places.set(identity, place);
  jobs.push(job);
  return [];
}

export function refuseProblems(problems: readonly string[], consequence: string): void {
  if (problems.length === 0) return;
  const more = problems.length > MOST_SHOWN ? `\n  and ${problems.length - MOST_SHOWN} more` : '';
  throw new CliError(`${consequence}:\n  ${problems.slice(0, MOST_SHOWN).join('\n  ')}${more}`, EXIT.usage);
}

const UNREADABLE: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'there is no such file',
  EACCES: 'you have no right to',
  ENAMETOOLONG: 'no file has so long a name',
};

/** @param inFolder how the files in it are passed on, should it be a folder */
async function readText(file: string, inFolder: (folder: string) => string): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = file === '-' ? await buffer(process.stdin) : await readFile(file);
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    const why = code === 'EISDIR' ? `it is a folder; ${inFolder(file)}` : (UNREADABLE[code] ?? message);
    throw new CliError(`cannot read ${file === '' ? '""' : cut(file)}: ${why}`, EXIT.usage, { cause: error });
  }
  try {
    // Not as Node reads a text: what it cannot read it replaces, unnoticed. A mark of the byte order is left out.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    const remedy = 'write it as UTF-8, or convert it: iconv -f LATIN1 -t UTF-8';
    throw new CliError(`${nameOf(file)} is no UTF-8: ${remedy}`, EXIT.usage, { cause: error });
  }
}
