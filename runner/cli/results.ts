import { Command } from 'commander';
import type { Result } from '../../schemas/index.ts';
import { batchResults } from '../bus/batch-results.ts';
import { parseBatch } from './address.ts';
import { clientConfig, openClientBus } from './client.ts';
import { CliError } from './error.ts';
import { refuseWithoutJobs } from './known-batch.ts';
import { table } from './table.ts';

export const resultsCommand = new Command('results')
  .description("Print the outcomes of a batch's jobs")
  .argument('<batch>', 'the batch', parseBatch)
  .option('--json', 'an array of results, as the bus has them')
  .addHelpText(
    'after',
    '\nExits 1 when the batch has no outcome yet. A score is - where the infrastructure failed: such jobs are not valid.',
  )
  .action(async (batch: string, options: { json?: boolean }) => {
    await using bus = await openClientBus(await clientConfig());
    const results: Result[] = [];
    for await (const result of batchResults(bus, batch)) results.push(result);
    results.sort((a, b) => a.job_id.localeCompare(b.job_id, 'en', { numeric: true }));
    if (options.json) console.log(JSON.stringify(results, null, 2));
    else if (results.length > 0)
      console.log(`${resultsTable(results, process.stdout.columns)}\n\n${resultsSummary(results)}`);
    if (results.length > 0) return;
    await refuseWithoutJobs(bus, batch);
    throw new CliError(`batch ${batch} has no outcome yet; gymbus watch ${batch} shows what waits`);
  });

/**
 * A line a job.
 * @param columns of the terminal: where whole addresses do not fit, what they share is said once, below
 */
export function resultsTable(results: readonly Result[], columns = Number.POSITIVE_INFINITY): string {
  const whole = table(results.map((result) => row(result, result.trajectory)));
  const shared = sharedFolder(results.flatMap(({ trajectory }) => trajectory ?? []));
  if (shared === '' || longestLine(whole) <= columns) return whole;
  const short = table(results.map((result) => row(result, result.trajectory?.slice(shared.length) ?? null)));
  return `${short}\n\ntrajectories are in ${shared}`;
}

function row(result: Result, trajectory: string | null): Record<string, string | number | null> {
  return {
    job: result.job_id,
    status: result.failure ? `${result.status} (${result.failure.class})` : result.status,
    score: result.score,
    steps: result.steps,
    seconds: Math.round((Date.parse(result.finished_at) - Date.parse(result.started_at)) / 100) / 10,
    trajectory,
  };
}

/** The folder of the batch's jobs, where all lie in one; else empty. */
function sharedFolder(trajectories: readonly string[]): string {
  const end = trajectories[0]?.indexOf('/jobs/') ?? -1;
  const folder = end < 0 ? '' : (trajectories[0] ?? '').slice(0, end + '/jobs/'.length);
  return trajectories.every((trajectory) => trajectory.startsWith(folder)) ? folder : '';
}

function longestLine(text: string): number {
  return Math.max(...text.split('\n').map((line) => line.length));
}

/** The three denominators: all jobs, the valid ones, those lost to the infrastructure. */
export function resultsSummary(results: readonly Result[]): string {
  const valid = results.filter((result) => result.valid);
  const scored = valid.flatMap((result) => (result.score === null ? [] : [result.score]));
  const mean = scored.reduce((sum, score) => sum + score, 0) / scored.length;
  const score = scored.length > 0 ? `mean score ${mean.toFixed(3)} over ${scored.length} scored` : 'none scored';
  const jobs = results.length === 1 ? '1 job' : `${results.length} jobs`;
  return `${jobs}: ${valid.length} valid, ${results.length - valid.length} not valid; ${score}`;
}
