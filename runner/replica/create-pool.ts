import type { Logger } from 'pino';
import { chooseAccelerator } from '../qemu/accelerator.ts';
import { findQemu } from '../qemu/binary.ts';
import type { StorageArea } from '../storage/area.ts';
import type { BuildProgress } from './build-progress.ts';
import { hostRoom, planCapacity, replicaCost } from './capacity.ts';
import type { Engine } from './engine.ts';
import type { ImageFiles } from './image-files.ts';
import { openIsolation, sayIsolation } from './isolation.ts';
import { VirtualPool } from './pool.ts';
import { reapOwned } from './reap.ts';
import { openRunRoot } from './run-root.ts';
import { Shelf } from './shelf.ts';
import { ensureTemplate, type Template } from './template.ts';

export interface ReplicaSettings {
  /** Replicas that may act at once; by default from memory, processors and disk. */
  acting?: number | undefined;
  /** Hot replicas kept per image; by default as many as may act. */
  ready?: number | undefined;
  /** Frozen ones kept behind the hot ones of each image. */
  frozen?: number | undefined;
  accelerator: 'auto' | 'kvm' | 'tcg';
  /** Who QEMU runs as, where the runner is root; by default a system user of its own. */
  qemuUser?: string | undefined;
  /** Free disk below which no replica is made. */
  diskFloorBytes: number;
  /** For what is found out once per host, such as whether KVM works. */
  cacheDir: string;
}

export interface PoolOrder {
  images: readonly ImageFiles[];
  area: StorageArea;
  runnerId: string;
  settings: ReplicaSettings;
  log: Logger;
  signal: AbortSignal;
  /** Templates being made, which takes a minute each the first time. */
  onProgress?: (progress: BuildProgress & { image: string }) => void;
}

/**
 * Reaps what an earlier process of this runner id left, finds or makes the templates, and opens a pool that fills in the background.
 * The area stays the caller's, and so does the runner id, which no other process may have at the same time.
 * @throws what a template cannot be made for
 */
export async function createReplicaPool(order: PoolOrder): Promise<VirtualPool> {
  const { area, runnerId, settings, log, signal } = order;
  const [first] = order.images;
  if (!first) throw new Error('no image to serve: build one first');
  const reaped = await reapOwned(area.path, runnerId);
  if (reaped.replicas > 0) log.info(reaped, 'reaped what an earlier process left behind');
  const qemu = await findQemu();
  const isolation = await openIsolation({ qemuUser: settings.qemuUser, runnerId });
  sayIsolation(isolation, log);
  const { accelerator, reason } = await chooseAccelerator({
    wanted: settings.accelerator,
    qemu,
    kernelPath: first.kernelPath,
    user: isolation.user,
    cacheDir: settings.cacheDir,
    signal,
  });
  log.info({ accelerator, reason, qemu: qemu.version }, 'accelerator');
  const engine: Engine = { area, runnerId, qemu, accelerator, isolation, runRoot: await openRunRoot(), log };
  const make = (image: ImageFiles, until: AbortSignal): Promise<Template> =>
    ensureTemplate(engine, image, (progress) => order.onProgress?.({ ...progress, image: image.name }), until);
  const templates: Template[] = [];
  for (const image of order.images) templates.push(await make(image, signal));

  const room = await hostRoom(area, accelerator);
  const memoryMib = Math.max(...order.images.map((image) => image.manifest.memory_mib));
  const capacity = planCapacity(room, replicaCost(accelerator, memoryMib), settings);
  log.info({ ...capacity, cpus: room.cpus, memory_bytes: room.memoryBytes, disk_bytes: room.diskBytes }, 'capacity');
  const shelfSettings = {
    hot: capacity.ready,
    frozen: settings.frozen ?? 0,
    parallel: Math.max(1, Math.floor(room.cpus / 2)),
  };
  const makeShelves = (changed: () => void): Shelf[] =>
    templates.map(
      (template) => new Shelf(engine, template, shelfSettings, (closing) => make(template.image, closing), changed),
    );
  return new VirtualPool(engine, makeShelves, { capacity, diskFloorBytes: settings.diskFloorBytes });
}
