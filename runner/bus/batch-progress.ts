import { readConsumer } from './consumers.ts';
import type { Bus } from './index.ts';
import { answered } from './stored.ts';

/** How far a batch has come, as the server counts. */
export interface BatchProgress {
  /** In the queue and held by nobody, by image. */
  waiting: number;
  /** Held by a runner, or given back and resting. */
  running: number;
  /** Jobs with an outcome, superseded or not. */
  done: number;
  /** Images its jobs in the queue are for. */
  images: string[];
}

/** Counts the jobs of a batch. One request to each stream, and one a durable. */
export async function batchProgress(bus: Bus, batch: string): Promise<BatchProgress> {
  const { jobsStream, resultsStream, prefix } = bus.names;
  const subjectsOf = (stream: string, filter: string) =>
    answered(bus, () => bus.jsm.streams.info(stream, { subjects_filter: filter }));
  const [jobs, results] = await Promise.all([
    subjectsOf(jobsStream, `${prefix}.jobs.*.${batch}.>`),
    subjectsOf(resultsStream, bus.names.resultSubject(batch, '*')),
  ]);
  const queued = Object.keys(jobs.state.subjects ?? {});
  const images = [...new Set(queued.map((subject) => bus.names.parseJobSubject(subject)?.image ?? ''))].filter(Boolean);
  const held = await Promise.all(images.map((image) => heldJobs(bus, image, batch)));
  const running = held.reduce((sum, count) => sum + count, 0);
  return {
    waiting: Math.max(0, queued.length - running),
    running,
    done: Object.keys(results.state.subjects ?? {}).length,
    images,
  };
}

async function heldJobs(bus: Bus, image: string, batch: string): Promise<number> {
  const consumer = await readConsumer(bus, { image, batch });
  return consumer?.held ?? 0;
}
