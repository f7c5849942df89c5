import path from 'node:path';
import { builtinFunctions, functionNames } from '../../functions/registry.ts';
import type { RunnerStatus } from '../../schemas/index.ts';
import { BatchFlags } from '../bus/batch-flags.ts';
import { Batches } from '../bus/batches.ts';
import { ensureStreams } from '../bus/ensure.ts';
import { Events } from '../bus/events.ts';
import { Heartbeat } from '../bus/heartbeat.ts';
import { type Bus, openBus } from '../bus/index.ts';
import { Drained } from '../job/classify.ts';
import { LOOK_DEFAULTS } from '../job/observe.ts';
import type { Player } from '../job/player.ts';
import { createReplicaPool } from '../replica/create-pool.ts';
import type { ImageFiles } from '../replica/image-files.ts';
import type { VirtualPool } from '../replica/pool.ts';
import { openArea, type StorageArea } from '../storage/area.ts';
import { uploadLeftovers } from '../storage/leftovers.ts';
import { waitForStorage } from '../storage/ready.ts';
import type { RecordingPlace } from '../storage/recorder.ts';
import { ObjectStore } from '../storage/s3.ts';
import { Spool } from '../storage/spool.ts';
import { Uploader } from '../storage/uploader.ts';
import { LockHeld, lockFile } from '../system/lock.ts';
import { makeFolder } from '../system/make-folder.ts';
import { Cleanup } from './cleanup.ts';
import type { Config } from './config.ts';
import { Deliveries } from './deliveries.ts';
import { serveHealth } from './health.ts';
import { holdReason } from './holds.ts';
import type { Logger } from './log.ts';
import { Metrics } from './metrics.ts';
import { type HostLook, pullLoop } from './pull-loop.ts';
import { RunnerRefused } from './refused.ts';
import { StatusBoard } from './status.ts';
import { together } from './together.ts';

export interface RunnerSettings {
  config: Config;
  images: readonly ImageFiles[];
  versions: Record<string, string>;
  log: Logger;
  /** Makes a missing bucket: for a local stack. */
  createBucket: boolean;
  /** Told how a template comes along, where one has to be made. */
  onProgress?: (progress: { phase: string; fraction: number | null; message: string }) => void;
  /** Ends the start, should it still be under way. */
  signal: AbortSignal;
}

/** A runner that pulls. */
export interface Runner {
  readonly healthPort: number;
  status(): RunnerStatus;
  /** Rejects when pulling ended by an error of its own: a fault of gymbus. Resolves after `stop`. */
  readonly failed: Promise<void>;
  /**
   * Stops pulling, lets jobs under way end within the drain budget, gives the rest back, leaves nothing behind.
   * Idempotent: a later call gets the first one's promise.
   */
  stop(): Promise<void>;
  /** Gives the jobs under way back at once; to be called while `stop` runs. */
  hurry(): void;
}

/**
 * Starts a runner: reaps what an earlier one left, waits for bus and storage, makes templates and warm replicas, pulls.
 * @throws RunnerRefused, BusRefused, StorageRefused, AreaUnavailable, StreamDiffers: each with its remedy
 */
export async function startRunner(settings: RunnerSettings): Promise<Runner> {
  const { config, log } = settings;
  const cleanup = new Cleanup(log);
  try {
    return await start(settings, cleanup);
  } catch (error) {
    await cleanup.run();
    throw error;
  } finally {
    log.debug({ runner: config.runnerId }, 'start is over');
  }
}

async function start(settings: RunnerSettings, cleanup: Cleanup): Promise<Runner> {
  const { config, images, log, signal } = settings;
  await makeFolder(config.dataDir);
  cleanup.use('lock', await lockRunner(config));
  const area = cleanup.use(
    'storage area',
    await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal),
  );
  log.info(area.description);
  const spool = await Spool.open(path.join(area.path, 'runners', config.runnerId, 'spool'));

  const board = new StatusBoard({
    runner: config.runnerId,
    version: settings.versions.gymbus ?? 'unknown',
    functions: functionNames(),
    images: images.map(({ name, digest, manifest }) => ({ name, digest, network: manifest.network.hosts })),
    spoolBytes: () => spool.bytes(),
  });
  const metrics = new Metrics(() => board.read());
  const healthPage = cleanup.use('health page', await serveHealth(config.healthPort, () => board.read(), metrics));

  const store = cleanup.defer('S3 client', new ObjectStore(config.s3), (it) => it[Symbol.dispose]());
  const [{ bus, heartbeat }, , pool] = await together<[RunnerBus, unknown, VirtualPool]>(signal, (inner) => [
    openRunnerBus(settings, board, inner, cleanup),
    readyStorage(store, spool, settings, inner),
    makePool(settings, { area, board, metrics }, inner, cleanup),
  ]);
  const place: RecordingPlace = { store, spool, uploader: cleanup.use('uploader', new Uploader(store, log)) };
  const flags = cleanup.use('batch flags', new BatchFlags(bus));
  const player = makePlayer(settings, bus, place, flags);
  const deliveries = new Deliveries(player, (end) => metrics.ended(end));
  const batches = cleanup.defer(
    'batches',
    new Batches(bus, { images: images.map(({ name }) => name), standing: (batch) => flags.standing(batch) }),
    (it) => it[Symbol.dispose](),
  );

  const pulling = new AbortController();
  const hurry = new AbortController();
  const look = async (image: string): Promise<HostLook> => {
    const diskFreeBytes = await area.freeBytes();
    const { health } = place.uploader;
    const reason = holdReason({
      ...{ diskFreeBytes, diskFloorBytes: config.diskFloorBytes },
      ...{ spoolBytes: spool.bytes(), spoolLimitBytes: config.spoolLimitBytes },
      // More than may act at once: those beyond have been played.
      waitingJobs: deliveries.running - pool.capacity.acting,
      storageRefusal: health.ok || !health.refused ? null : health.error,
      poolTrouble: pool.troubleOf(image),
    });
    return { diskFreeBytes, reason };
  };
  board.running(pool);
  heartbeat.beat();
  const loops = pool.images.map(({ name }) =>
    pullLoop(name, {
      ...{ batches, pool, look: () => look(name), signal: pulling.signal },
      play: (taken, reservation) => deliveries.play(taken, reservation),
      onLook: ({ reason, diskFreeBytes }) => {
        if (!board.hold(name, reason, diskFreeBytes)) return;
        log.warn({ image: name, reason }, reason === null ? 'pulling again' : 'not pulling');
        heartbeat.beat();
      },
    }),
  );
  log.info(
    { runner: config.runnerId, images: pool.images, capacity: pool.capacity, health_port: healthPage.port },
    'runner is ready',
  );

  let stopping: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    board.draining();
    heartbeat.beat();
    pulling.abort(new Drained('the runner stops'));
    await Promise.allSettled(loops);
    await deliveries.drain(config.drainMs, hurry.signal);
    await cleanup.run();
    log.info({ runner: config.runnerId }, 'runner stopped');
  };
  return {
    healthPort: healthPage.port,
    status: () => board.read(),
    failed: Promise.all(loops).then(() => undefined),
    stop: () => {
      stopping ??= stop();
      return stopping;
    },
    hurry: () => hurry.abort(),
  };
}

async function lockRunner(config: Config): Promise<AsyncDisposable> {
  const file = path.join(config.dataDir, 'runners', `${config.runnerId}.lock`);
  try {
    return await lockFile(file, { waitMs: 0 });
  } catch (error) {
    if (!(error instanceof LockHeld)) throw error;
    throw new RunnerRefused(
      `another runner ${JSON.stringify(config.runnerId)} is alive on ${config.dataDir}; give this one a GYMBUS_RUNNER_ID of its own`,
      { cause: error },
    );
  }
}

interface RunnerBus {
  bus: Bus;
  heartbeat: Heartbeat;
}

/** Visible as starting from here on. */
async function openRunnerBus(
  { config, log }: RunnerSettings,
  board: StatusBoard,
  signal: AbortSignal,
  cleanup: Cleanup,
): Promise<RunnerBus> {
  const bus = cleanup.use(
    'bus',
    await openBus({ ...config.nats, name: `gymbus runner ${config.runnerId}`, log, signal }),
  );
  const made = await ensureStreams(bus);
  if (made.length > 0) log.info({ made }, 'streams and buckets made');
  return { bus, heartbeat: cleanup.use('heartbeat', new Heartbeat(bus, config.runnerId, () => board.read())) };
}

async function readyStorage(
  store: ObjectStore,
  spool: Spool,
  settings: RunnerSettings,
  signal: AbortSignal,
): Promise<void> {
  const { log, createBucket } = settings;
  await waitForStorage(store, log, { createBucket, signal });
  const left = await uploadLeftovers(spool, store, log, { signal });
  if (left.length > 0) log.warn({ left }, 'unfinished attempts of an earlier run are uploaded and deleted here');
}

async function makePool(
  { config, images, log, onProgress }: RunnerSettings,
  { area, board, metrics }: { area: StorageArea; board: StatusBoard; metrics: Metrics },
  signal: AbortSignal,
  cleanup: Cleanup,
): Promise<VirtualPool> {
  board.starting('making templates and warm replicas');
  const pool = await createReplicaPool({
    ...{ images, area, log, signal },
    ...(onProgress ? { onProgress } : {}),
    ...{ runnerId: config.runnerId, observer: metrics },
    settings: {
      ...{ acting: config.acting, ready: config.ready, frozen: config.frozen, mergeMemory: config.mergeMemory },
      ...{ groupCpus: config.groupCpus, perGroup: config.perGroup },
      ...{ accelerator: config.accelerator, qemuUser: config.qemuUser },
      ...{ cacheDir: config.cacheDir, diskFloorBytes: config.diskFloorBytes },
    },
  });
  return cleanup.use('replicas', pool);
}

function makePlayer(
  { config, images, log, versions }: RunnerSettings,
  bus: Bus,
  place: RecordingPlace,
  flags: BatchFlags,
): Player {
  const events = new Events(bus);
  return {
    ...{ runner: config.runnerId, bus, place, flags, log, versions },
    functions: builtinFunctions,
    look: { ...LOOK_DEFAULTS, settle: config.settle },
    downloads: config.downloads,
    allowedHosts: (image) => images.find(({ name }) => name === image)?.manifest.network.hosts ?? [],
    emit: (kind, { batch, job }, attempt, data) =>
      events.emit({
        ...{ schema: 'gymbus.event.v1', kind, batch_id: batch, job_id: job, attempt, runner: config.runnerId },
        at: new Date().toISOString(),
        data,
      }),
  };
}
