import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { type BatchProgress, batchProgress } from '../bus/batch-progress.ts';
import type { Bus } from '../bus/index.ts';
import { parseBatch } from './address.ts';
import { clientConfig, openClientBus } from './client.ts';
import { Interrupt } from './interrupt.ts';
import { refuseWithoutJobs } from './known-batch.ts';
import { type ProgressView, progressView } from './progress.ts';
import { Rate } from './rate.ts';
import { troubleOf } from './serving.ts';

const LOOK_MS = 1_000;

export const watchCommand = new Command('watch')
  .description('Show how a batch comes along, until every job has an outcome')
  .argument('<batch>', 'the batch', parseBatch)
  .option('--once', 'print the counts and leave')
  .addHelpText(
    'after',
    '\nA bar on a terminal, else a line at each change. Exits 0 when nothing of the batch is in the queue, 1 when it has no jobs.',
  )
  .action(async (batch: string, options: { once?: boolean }) => {
    using interrupt = new Interrupt();
    await using bus = await openClientBus(await clientConfig());
    const view = progressView(batch, process.stdout);
    await refuseWithoutJobs(bus, batch);
    await watchBatch(bus, batch, view, { once: options.once ?? false, signal: interrupt.signal });
    if (!options.once) console.error(`how they ended: gymbus results ${batch}`);
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
      const counts = `${now.done} done, ${now.running} running, ${now.waiting} waiting`;
      const speed = now.done > 0 ? rate.text() : '';
      const patience = { signal: options.signal, patienceMs: LOOK_MS };
      const trouble = now.waiting > 0 ? await troubleOf(bus, now.images, patience) : '';
      view.report({
        phase: counts + trouble,
        fraction: total === 0 ? 0 : now.done / total,
        message: `${counts}${speed && `, ${speed}`}${trouble && `; ${trouble}`}`,
      });
      if (options.once || (now.done >= (options.expected ?? 0) && now.running + now.waiting === 0)) return now;
      await sleep(LOOK_MS, undefined, { signal: options.signal });
    }
  } finally {
    view.stop();
  }
}
