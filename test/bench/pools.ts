import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { createReplicaPool, type PoolOrder, type ReplicaSettings } from '../../runner/replica/create-pool.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { openArea } from '../../runner/storage/area.ts';

/** A pool of its own for a benchmark, as this host's settings say; the area is left with it. */
export async function openBenchPool(
  image: Image,
  runnerId: string,
  own: Partial<ReplicaSettings>,
  signal: AbortSignal,
  more: Partial<PoolOrder> = {},
): Promise<{ pool: VirtualPool } & AsyncDisposable> {
  const { dataDir, cacheDir, diskFloorBytes, accelerator, mergeMemory } = readConfig(process.env);
  const area = await openArea({ dataDir, floorBytes: diskFloorBytes }, signal);
  try {
    const settings = { accelerator, diskFloorBytes, cacheDir, mergeMemory, ...own };
    const order = { images: [image], area, runnerId, log: pino({ level: 'silent' }), signal };
    const pool = await createReplicaPool({ ...order, ...more, settings });
    return {
      pool,
      async [Symbol.asyncDispose]() {
        await pool[Symbol.asyncDispose]();
        await area[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    await area[Symbol.asyncDispose]();
    throw error;
  }
}

/** The next that is ready, however long that takes. */
export async function claimNext(pool: VirtualPool, imageName: string, signal: AbortSignal): Promise<VirtualReplica> {
  for (;;) {
    signal.throwIfAborted();
    await pool.waitReady(imageName, signal);
    const replica = await pool.reserve(imageName)?.claim(signal);
    if (replica) return replica as VirtualReplica;
  }
}

/** Until the pool has so many that are hot. */
export async function untilHot(pool: VirtualPool, count: number, signal: AbortSignal): Promise<void> {
  while ((pool.phases().hot ?? 0) < count) await sleep(100, undefined, { signal });
}
