import { Command, Option } from 'commander';
import { quote, type RunnerStatus, type TrajectoryJobInput } from '../../schemas/index.ts';
import { ensureStreams } from '../bus/ensure.ts';
import { BusRefused } from '../bus/errors.ts';
import { readRunners } from '../bus/heartbeat.ts';
import type { Bus } from '../bus/index.ts';
import { type JobToPublish, type Published, publishJobs } from '../bus/publisher.ts';
import { BusAway } from '../bus/stored.ts';
import { parseBatch } from './address.ts';
import { clientConfig, openClientBus } from './client.ts';
import { CliError, EXIT } from './error.ts';
import { refusedHosts } from './host-policy.ts';
import { Interrupt } from './interrupt.ts';
import { type CheckedJob, readJobLines, readOsworldTasks, refuseProblems } from './job-files.ts';
import { progressView } from './progress.ts';
import { servingWarnings } from './serving.ts';

const MOST_BATCHES_SHOWN = 5;
const MOST_PROBLEMS_SHOWN = 20;
/** How long it looks for live runners, when all is published. */
const LOOK_MS = 3_000;

interface SubmitOptions {
  osworld?: string[];
  batch?: string;
  policy?: string;
  params?: TrajectoryJobInput['policy']['params'];
  image?: string;
}

export const submitCommand = new Command('submit')
  .description('Publish jobs: lines of JSON, or OSWorld task files')
  .argument('[file]', 'one job a line, or one over many; - for standard input')
  .option('--osworld <task...>', 'OSWorld task files, each as it is')
  .option('--batch <id>', 'batch of the OSWorld tasks', parseBatch)
  .option('--policy <name>', 'policy that plays the OSWorld tasks')
  .addOption(new Option('--params <json>', 'parameters of that policy').argParser(parseParams))
  .option('--image <name>', 'image the OSWorld tasks are played on')
  .addHelpText(
    'after',
    '\nEvery job is checked before the first is published. Safe to repeat: a job is in the queue once.\nWarns when no live runner serves an image.\nExits 0 when every job is queued, was, or is done; 1 when the bus refused one; 2 when a job is wrong.',
  )
  .action(async (file: string | undefined, options: SubmitOptions) => {
    using interrupt = new Interrupt();
    const jobs = await readJobs(file, options);
    await using bus = await openClientBus(await clientConfig());
    await ensureStreams(bus);
    await refuseHosts(bus, jobs);
    const counts = await publishWithProgress(bus, jobs, interrupt.signal);
    console.log(publishSummary(counts));
    const batches = [...new Set(jobs.map(({ address }) => address.batch))];
    for (const batch of batches.slice(0, MOST_BATCHES_SHOWN)) console.error(`to follow it: gymbus watch ${batch}`);
    await warnOfUnserved(bus, [...counts.images]);
    if (counts.problems.length > 0) {
      throw new CliError(`not published:\n  ${counts.problems.slice(0, MOST_PROBLEMS_SHOWN).join('\n  ')}`);
    }
  });

/** Only live runners know the policies of their images: where they cannot be seen, a runner finds out. */
async function refuseHosts(bus: Bus, jobs: readonly CheckedJob[]): Promise<void> {
  const asking = jobs.filter(({ hosts }) => hosts.length > 0);
  if (asking.length === 0) return;
  let runners: RunnerStatus[];
  try {
    runners = await readRunners(bus, { patienceMs: LOOK_MS });
  } catch (error) {
    if (error instanceof BusRefused || error instanceof BusAway) return;
    throw error;
  }
  refuseProblems(refusedHosts(asking, runners), 'nothing was published');
}

/** Publishing needs no runner: it is a warning. Whoever may not see runners has published all the same. */
async function warnOfUnserved(bus: Bus, images: readonly string[]): Promise<void> {
  if (images.length === 0) return;
  try {
    for (const warning of servingWarnings(images, await readRunners(bus, { patienceMs: LOOK_MS })))
      console.error(`warning: ${warning}`);
  } catch (error) {
    if (!(error instanceof BusRefused || error instanceof BusAway)) throw error;
    // A read of many that is not allowed is answered by nobody.
    console.error(
      `whether a runner serves these jobs cannot be seen (${error.message}); who has the rights of a publisher sees it: infra/nats/permissions`,
    );
  }
}

async function readJobs(file: string | undefined, options: SubmitOptions): Promise<CheckedJob[]> {
  const { osworld, batch, policy, params, image } = options;
  if ((file === undefined) === (osworld === undefined)) {
    throw new CliError(
      'give either a file of job lines (- for standard input) or --osworld with task files',
      EXIT.usage,
    );
  }
  if (file !== undefined) {
    const given = Object.keys(options).map((name) => `--${name}`);
    if (given.length === 0) return readJobLines(file);
    throw new CliError(`${given.join(', ')}: of OSWorld tasks; a line of ${file} says itself what it is`, EXIT.usage);
  }
  if (batch === undefined || policy === undefined) {
    throw new CliError('--osworld needs --batch ID and --policy NAME', EXIT.usage);
  }
  return readOsworldTasks(osworld ?? [], { batch, policy: { name: policy, ...(params ? { params } : {}) }, image });
}

export interface PublishCounts {
  queued: number;
  already_queued: number;
  already_done: number;
  /** Of the jobs that are in the queue now. */
  images: Set<string>;
  /** One line a job that was not published. */
  problems: string[];
}

/** In one line; what did not happen is left out. */
function publishSummary(counts: PublishCounts): string {
  const parts = [
    `${counts.queued} queued`,
    ...(counts.already_queued > 0 ? [`${counts.already_queued} were in the queue`] : []),
    ...(counts.already_done > 0 ? [`${counts.already_done} done before`] : []),
    ...(counts.problems.length > 0 ? [`${counts.problems.length} refused`] : []),
  ];
  return parts.join(', ');
}

/** Publishes jobs, showing how far it is. */
export async function publishWithProgress(
  bus: Bus,
  jobs: readonly JobToPublish[],
  signal: AbortSignal,
): Promise<PublishCounts> {
  const counts: PublishCounts = { queued: 0, already_queued: 0, already_done: 0, images: new Set(), problems: [] };
  const view = progressView('publish');
  let told = 0;
  try {
    for await (const { job, published } of publishJobs(bus, jobs, { signal })) {
      count(counts, job, published);
      told += 1;
      if (told % 100 === 0 || told === jobs.length) {
        view.report({ phase: 'publishing', fraction: told / jobs.length, message: `${told} of ${jobs.length} jobs` });
      }
    }
  } finally {
    view.stop();
  }
  return counts;
}

function count(counts: PublishCounts, { address }: JobToPublish, published: Published): void {
  if (published.kind === 'too_large' || published.kind === 'refused') {
    counts.problems.push(`${address.batch}/${address.job}: ${published.message}`);
    return;
  }
  counts[published.kind] += 1;
  if (published.kind !== 'already_done') counts.images.add(address.image);
}

function parseParams(json: string): TrajectoryJobInput['policy']['params'] {
  try {
    const value: unknown = JSON.parse(json);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, never>;
  } catch {
    // Said below, with the value.
  }
  throw new CliError(`--params must be a JSON object, got ${quote(json)}`, EXIT.usage);
}
