import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { DEMO_JOBS, demoBatch, unexpected } from '../../infra/demo/batch.ts';
import type { Result } from '../../schemas/index.ts';
import { batchResults } from '../bus/batch-results.ts';
import { ensureStreams } from '../bus/ensure.ts';
import type { Bus } from '../bus/index.ts';
import { BusAway } from '../bus/stored.ts';
import { clientConfig, openClientBus } from './client.ts';
import { CliError } from './error.ts';
import { Interrupt } from './interrupt.ts';
import { type LocalGym, startLocalGym } from './local.ts';
import { watchNpm } from './parent-watch.ts';
import { progressView } from './progress.ts';
import { resultsTable } from './results.ts';
import { findLocalStack } from './stack.ts';
import { publishWithProgress } from './submit.ts';
import { watchBatch } from './watch.ts';

/** The end of a server is known some milliseconds after its connections broke. */
const END_KNOWN_MS = 1_000;

export const demoCommand = new Command('demo')
  .description('Play a small batch on a real desktop, from nothing: installs, builds, starts, publishes, shows')
  .addHelpText(
    'after',
    '\nBeside a running `gymbus up` it uses that stack. Exits 0 only if every outcome is the expected one.',
  )
  .action(async () => {
    using interrupt = new Interrupt();
    using _npm = await watchNpm(() => interrupt.fail('the npm that started this is gone'));
    await using gym = (await findLocalStack()) === null ? await startLocalGym(interrupt) : null;
    try {
      await playAndTell(gym, interrupt.signal);
    } catch (error) {
      // A server that ended is silent before its end is known.
      if (error instanceof BusAway && gym)
        await sleep(END_KNOWN_MS, undefined, { signal: interrupt.signal }).catch(() => undefined);
      // Whatever was waited for then fails in its own way.
      interrupt.signal.throwIfAborted();
      throw error;
    }
  });

async function playAndTell(gym: LocalGym | null, signal: AbortSignal): Promise<void> {
  // Nobody waits for its jobs any more.
  const hurry = (): void => gym?.runner.hurry();
  if (signal.aborted) hurry();
  signal.addEventListener('abort', hurry, { once: true });
  await using bus = await openClientBus(gym?.config ?? (await clientConfig()));
  await ensureStreams(bus);
  const batch = `demo-${new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, '').replace('T', '-')}`;
  const results = await playDemo(bus, batch, signal);
  await tell(batch, results, gym);
}

async function playDemo(bus: Bus, batch: string, signal: AbortSignal): Promise<Result[]> {
  const jobs = demoBatch(batch);
  const counts = await publishWithProgress(
    bus,
    jobs.map((job) => ({
      address: { image: job.image, batch, job: job.job_id },
      data: Buffer.from(JSON.stringify(job)),
    })),
    signal,
  );
  if (counts.problems.length > 0) throw new CliError(`not published:\n  ${counts.problems.join('\n  ')}`);
  await watchBatch(bus, batch, progressView(batch), { expected: jobs.length, signal });
  const results: Result[] = [];
  for await (const result of batchResults(bus, batch)) results.push(result);
  return results;
}

async function tell(batch: string, results: readonly Result[], gym: LocalGym | null): Promise<void> {
  const byJob = new Map(results.map((result) => [result.job_id, result]));
  const inOrder = DEMO_JOBS.flatMap(({ job }) => byJob.get(job.job_id) ?? []);
  console.log(`\n${resultsTable(inOrder, process.stdout.columns)}\n`);
  const wrong = DEMO_JOBS.flatMap((demo) => {
    const result = byJob.get(demo.job.job_id);
    const difference = result ? unexpected(demo, result) : 'has no outcome';
    return difference === null ? [] : [`${demo.job.job_id}: ${difference}`];
  });
  if (gym) {
    console.log(`Pictures and steps lie in ${gym.config.dataDir}/stack/s3/${gym.config.s3.bucket}/batches/${batch}/`);
    console.log('`npx gymbus up` keeps stack and runner running, to publish to and to read from.');
  } else {
    console.log(`\`npx gymbus get ${batch}/JOB\` downloads the pictures and steps of a job.`);
  }
  if (wrong.length > 0) {
    throw new CliError(`not as expected:\n  ${wrong.join('\n  ')}${gym ? `\nthe log is ${gym.logFile}` : ''}`);
  }
  console.log(`All ${DEMO_JOBS.length} outcomes are as expected.`);
}
