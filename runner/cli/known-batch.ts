import { quote } from '../../schemas/index.ts';
import { readBatch } from '../bus/batch-flags.ts';
import { batchProgress } from '../bus/batch-progress.ts';
import type { Bus } from '../bus/index.ts';
import { CliError } from './error.ts';

/** A bus that has just answered is not waited for. */
const LOOK_MS = 1_000;

/** @throws CliError when a batch has no job, in the queue or with an outcome: it says whether anything is known of it */
export async function refuseWithoutJobs(bus: Bus, batch: string): Promise<void> {
  const { done, running, waiting } = await batchProgress(bus, batch);
  if (done + running + waiting > 0) return;
  const nothing = 'none of its jobs is queued, and none has an outcome';
  if (await readBatch(bus, batch, { patienceMs: LOOK_MS }))
    throw new CliError(`batch ${quote(batch)} has a record but no jobs: ${nothing}`);
  throw new CliError(
    `no batch ${quote(batch)} on this bus (${bus.nc.getServer()}): ${nothing}; check its name, NATS_URL and GYMBUS_PREFIX`,
  );
}
