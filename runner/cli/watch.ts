import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { type BatchProgress, batchProgress } from '../bus/batch-progress.ts';
import { readRunners } from '../bus/heartbeat.ts';
import type { Bus } from '../bus/index.ts';
import { parseBatch } from './address.ts';
import { clientConfig, openClientBus } from './client.ts';
import { CliError } from './error.ts';
import { progressView } from './progress.ts';
import { Rate } from './rate.ts';

const LOOK_MS = 1_000;

export const watchCommand = new Command('watch')
  .description('Show how a batch comes along, until every job has an outcome')
  .argument('<batch>', 'the batch', parseBatch)
  .option('--once', 'print the counts and leave')
  .action(async (batch: string, options: { once?: boolean }) => {
    await using bus = await openClientBus(await clientConfig());
    const progress = await watchBatch(bus, batch, {
      once: options.once ?? false,
      signal: new AbortController().signal,
    });
    if (progress.done + progress.running + progress.waiting === 0)
      throw new CliError(`nothing is known of batch ${batch}`);
  });

/**
 * Shows a batch's counts until nothing of it is in the queue.
 * @param options.expected how many jobs there are in all, where that is known
 */
export async function watchBatch(
  bus: Bus,
  batch: string,
  options: { once?: boolean; expected?: number; signal: AbortSignal },
): Promise<BatchProgress> {
  const view = progressView(batch);
  const rate = new Rate();
  try {
    for (;;) {
      const now = await batchProgress(bus, batch);
      const total = Math.max(options.expected ?? 0, now.done + now.running + now.waiting);
      rate.add(now.done);
      const counts = `${now.done} done, ${now.running} running, ${now.waiting} waiting`;
      const unserved = now.waiting > 0 ? await unservedImages(bus, now.images) : [];
      const trouble = unserved.length > 0 ? `; no live runner serves ${unserved.join(', ')}` : '';
      // The phase is what a plain log prints once a change: the counts themselves.
      view.report({ phase: counts + trouble, fraction: total === 0 ? 0 : now.done / total, message: rate.text() });
      if (options.once || (now.done >= (options.expected ?? 0) && now.running + now.waiting === 0)) return now;
      await sleep(LOOK_MS, undefined, { signal: options.signal });
    }
  } finally {
    view.stop();
  }
}

async function unservedImages(bus: Bus, images: readonly string[]): Promise<string[]> {
  const runners = await readRunners(bus);
  const served = new Set(runners.flatMap((runner) => runner.images.map(({ name }) => name)));
  return images.filter((image) => !served.has(image));
}
