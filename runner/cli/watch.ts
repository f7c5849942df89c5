import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { type BatchProgress, batchProgress } from '../bus/batch-progress.ts';
import { readRunners } from '../bus/heartbeat.ts';
import type { Bus } from '../bus/index.ts';
import { parseBatch } from './address.ts';
import { clientConfig, openClientBus } from './client.ts';
import { CliError } from './error.ts';
import { Interrupt } from './interrupt.ts';
import { type ProgressView, progressView } from './progress.ts';
import { Rate } from './rate.ts';

const LOOK_MS = 1_000;

export const watchCommand = new Command('watch')
  .description('Show how a batch comes along, until every job has an outcome')
  .argument('<batch>', 'the batch', parseBatch)
  .option('--once', 'print the counts and leave')
  .addHelpText(
    'after',
    '\nA bar on a terminal, else a line at each change. Exits 0 when nothing of the batch is in the queue, 1 when nothing is known of it.',
  )
  .action(async (batch: string, options: { once?: boolean }) => {
    using interrupt = new Interrupt();
    await using bus = await openClientBus(await clientConfig());
    const view = progressView(batch, process.stdout);
    const progress = await watchBatch(bus, batch, view, { once: options.once ?? false, signal: interrupt.signal });
    if (progress.done + progress.running + progress.waiting === 0) {
      throw new CliError(`nothing is known of batch ${batch}: none of its jobs is queued, and none has an outcome`);
    }
  });

/**
 * Shows a batch's counts until nothing of it is in the queue; then the view is stopped.
 * @param options.expected how many jobs there are in all, where that is known
 */
export async function watchBatch(
  bus: Bus,
  batch: string,
  view: ProgressView,
  options: { once?: boolean; expected?: number; signal: AbortSignal },
): Promise<BatchProgress> {
  const rate = new Rate();
  try {
    for (;;) {
      const now = await batchProgress(bus, batch);
      const total = Math.max(options.expected ?? 0, now.done + now.running + now.waiting);
      rate.add(now.done);
      const unserved = now.waiting > 0 ? await unservedImages(bus, now.images) : [];
      const trouble = unserved.length > 0 ? `; no live runner serves ${unserved.join(', ')}` : '';
      const counts = `${now.done} done, ${now.running} running, ${now.waiting} waiting${trouble}`;
      const speed = rate.text();
      view.report({
        phase: counts,
        fraction: total === 0 ? 0 : now.done / total,
        message: speed === '' ? counts : `${counts}, ${speed}`,
      });
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
