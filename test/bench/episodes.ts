import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { Image } from '../../images/store.ts';
import { startLocalStack } from '../../infra/local-stack.ts';
import { stackEnvironment } from '../../infra/stack-file.ts';
import { batchResults } from '../../runner/bus/batch-results.ts';
import { type Bus, openBus } from '../../runner/bus/index.ts';
import { publishJobs } from '../../runner/bus/publisher.ts';
import { type Config, readConfig } from '../../runner/host/config.ts';
import { createLog, type Logger } from '../../runner/host/log.ts';
import { startRunner } from '../../runner/host/runner.ts';
import type { Reservation } from '../../runner/replica/contract.ts';
import { createReplicaPool } from '../../runner/replica/create-pool.ts';
import { openArea } from '../../runner/storage/area.ts';
import { benchJob, playBare, SETTLE_MS, STEPS } from './bare-episode.ts';
import { type Figure, median, rounded } from './figure.ts';

/** Episodes a round, so many that its start and its end, when not all places are taken, weigh little. */
const EPISODES = 80;
const ROUNDS = 3;
/** Trajectories a minute with bus and storage in the loop, against the same episodes on the same pool without them. */
export async function episodeFigures(image: Image, cacheDir: string, signal: AbortSignal): Promise<Figure[]> {
  const { dataDir } = readConfig(process.env);
  const stackDir = await mkdtemp(path.join(os.tmpdir(), 'gymbus-bench-'));
  const log = createLog({ level: 'warn', format: 'json' });
  try {
    await using stack = await startLocalStack({ dataDir: stackDir, cacheDir, log, ports: { nats: 0, s3: 0 }, signal });
    const config = readConfig({
      ...stackEnvironment(stack),
      ...{ GYMBUS_DATA: dataDir, GYMBUS_CACHE: cacheDir, GYMBUS_RUNNER_ID: 'bench' },
      ...{ GYMBUS_SETTLE_MS: String(SETTLE_MS), GYMBUS_SETTLE_MAX_MS: String(SETTLE_MS) },
      ...(process.env.GYMBUS_ACTING ? { GYMBUS_ACTING: process.env.GYMBUS_ACTING } : {}),
    });
    const whole: number[] = [];
    const bare: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      bare.push(await bareRound(config, image, log, signal));
      whole.push(await wholeRound(config, image, log, signal, `bench-${round}`));
      console.error(
        `round ${round + 1}: ${rounded(whole.at(-1) ?? 0)}/min, without NATS and S3 ${rounded(bare.at(-1) ?? 0)}/min`,
      );
    }
    return figures(median(whole), median(bare));
  } finally {
    await rm(stackDir, { recursive: true, force: true });
  }
}

function figures(perMinute: number, barePerMinute: number): Figure[] {
  const ratio = perMinute / barePerMinute;
  const stepsPerSecond = (perMinute * STEPS) / 60;
  const cores = os.availableParallelism();
  const common = { baseline: rounded(barePerMinute), ratio: rounded(ratio) };
  const steps = { unit: 'steps/s', baseline: rounded((barePerMinute * STEPS) / 60), ratio: rounded(ratio) };
  return [
    {
      ...{
        figure: 'ten-step trajectories per minute, NATS and S3 in the loop',
        value: rounded(perMinute),
        unit: '/min',
      },
      ...common,
      ...{ goal: '>= 100', met: perMinute >= 100 },
    },
    {
      ...{ figure: 'the same against no NATS and no S3', value: rounded(ratio), unit: 'ratio' },
      ...common,
      ...{ goal: '>= 0.8', met: ratio >= 0.8 },
    },
    { figure: 'steps per second, in all', value: rounded(stepsPerSecond), ...steps, goal: 'reported', met: true },
    {
      figure: 'steps per second and core',
      value: rounded(stepsPerSecond / cores),
      ...steps,
      goal: 'reported',
      met: true,
    },
  ];
}

/** Publishes a batch to a warm runner and waits for its last outcome. @returns episodes a minute */
async function wholeRound(
  config: Config,
  image: Image,
  log: Logger,
  signal: AbortSignal,
  batch: string,
): Promise<number> {
  const runner = await startRunner({ config, images: [image], log, versions: {}, createBucket: true, signal });
  try {
    await using bus = await openBus({ ...config.nats, name: 'bench', log, signal });
    while ((runner.status().replicas.hot ?? 0) < runner.status().capacity.ready) await pause(100, signal);
    const jobs = Array.from({ length: EPISODES }, (_, number) => benchJob(batch, number)).map((job) => ({
      address: { image: job.image, batch, job: job.job_id },
      data: Buffer.from(JSON.stringify(job)),
    }));
    const startedAt = performance.now();
    for await (const { published } of publishJobs(bus, jobs, { signal })) {
      if (published.kind !== 'queued') throw new Error(`a job of the bench was not queued: ${published.kind}`);
    }
    await untilDone(bus, batch, signal);
    const minutes = (performance.now() - startedAt) / 60_000;
    for await (const result of batchResults(bus, batch)) {
      if (result.score !== 1)
        throw new Error(`${result.job_id} ended ${result.status} ${result.score} ${result.failure?.message}`);
    }
    return EPISODES / minutes;
  } finally {
    await runner.stop();
  }
}

async function untilDone(bus: Bus, batch: string, signal: AbortSignal): Promise<void> {
  const filter = bus.names.resultSubject(batch, '*');
  for (;;) {
    const { state } = await bus.jsm.streams.info(bus.names.resultsStream, { subjects_filter: filter });
    if (Object.keys(state.subjects ?? {}).length >= EPISODES) return;
    await pause(100, signal);
  }
}

/** The same episodes on the same kind of pool; pictures are taken and hashed, and go nowhere. @returns episodes a minute */
async function bareRound(config: Config, image: Image, log: Logger, signal: AbortSignal): Promise<number> {
  await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal);
  const { acting, ready, accelerator, cacheDir, diskFloorBytes } = config;
  await using pool = await createReplicaPool({
    ...{ images: [image], area, runnerId: 'bench-bare', log, signal },
    settings: { acting, ready, accelerator, cacheDir, diskFloorBytes },
  });
  while ((pool.phases().hot ?? 0) < pool.capacity.ready) await pause(100, signal);
  const startedAt = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let number = next++; number < EPISODES; number = next++) {
      let reservation: Reservation | null = pool.reserve(image.name);
      for (; reservation === null; reservation = pool.reserve(image.name)) {
        await pool.waitReady(image.name, signal);
        signal.throwIfAborted();
      }
      const replica = await reservation.claim(signal);
      await playBare(replica, number, signal);
      void replica.discard();
    }
  };
  await Promise.all(Array.from({ length: pool.capacity.acting }, worker));
  return EPISODES / ((performance.now() - startedAt) / 60_000);
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await new Promise((resolve) => setTimeout(resolve, ms));
}
