import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import type { Bus } from '../../runner/bus/index.ts';
import { type JobMessage, pull } from '../../runner/bus/pull.ts';
import { messageId, type TrajectoryJobInput } from '../../schemas/index.ts';
import type { NatsServer } from './nats.ts';
import { sampleJob } from './samples.ts';

/** Publishes a job the way a foreign publisher would. */
export async function publishJob(bus: Bus, over: Partial<TrajectoryJobInput> = {}, msgID?: string) {
  const job = sampleJob(over);
  const subject = bus.names.jobSubject({ image: job.image, batch: job.batch_id, job: job.job_id });
  return bus.js.publish(subject, JSON.stringify(job), { msgID: msgID ?? messageId(job.batch_id, job.job_id) });
}

/** Takes one job off the batch of `sampleJob`. */
export async function pullOne(bus: Bus, ackWaitMs: number, batch = 'night-42'): Promise<JobMessage> {
  const consumer = await ensureConsumer(bus, { image: 'debian-desktop', batch }, ackWaitMs);
  const { messages, end } = await pull(bus, consumer.name, 1);
  const [message] = messages;
  if (!message) throw new Error(`no job: ${end}`);
  return message;
}

/**
 * Reads what the server has written of a consumer.
 * @returns puts it back, with the server down: as if it had been killed before it wrote more, which takes it 0.1 s
 */
export async function keepConsumerState(server: NatsServer, consumer: string): Promise<() => Promise<void>> {
  const file = path.join(server.folder, 'store/jetstream/$G/streams/GYMBUS_JOBS/obs', consumer, 'o.dat');
  await eventually(() => existsSync(file));
  const written = await readFile(file);
  return () => writeFile(file, written);
}

/** Messages left in the jobs stream. */
export async function jobsLeft(bus: Bus): Promise<number> {
  return (await bus.jsm.streams.info(bus.names.jobsStream)).state.messages;
}

/** Waits until it holds; for what the server does in its own time. */
export async function eventually(check: () => boolean | Promise<boolean>, withinMs = 5_000): Promise<void> {
  const endMs = performance.now() + withinMs;
  while (!(await check())) {
    if (performance.now() > endMs) throw new Error(`did not come about within ${withinMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
