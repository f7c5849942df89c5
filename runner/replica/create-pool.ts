import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import type { StorageArea } from '../storage/area.ts';
import { cpuTopology } from '../system/cpu-topology.ts';
import type { BuildProgress } from './build-progress.ts';
import { CpuGroups, planGroups } from './cpu-groups.ts';
import { KERNEL, type KernelFolders } from './host-now.ts';
import type { Pace } from './household.ts';
import type { ImageFiles } from './image-files.ts';
import { Learner } from './learner.ts';
import { ledgerFolder } from './ledger.ts';
import { type OpenEngine, openEngine } from './open-engine.ts';
import { type PoolObserver, type StockMaker, VirtualPool } from './pool.ts';
import { reapOwned } from './reap.ts';
import { Shelf } from './shelf.ts';
import type { ShelfKeeper } from './shelf-keeper.ts';
import { Stock } from './stock.ts';
import { ensureTemplate, type Template } from './template.ts';
import { collectTemplates } from './template-collect.ts';

export interface ReplicaSettings {
  /** Replicas that may act at once; by default from memory, processors and disk. */
  acting?: number | undefined;
  /** Hot replicas kept of each image; by default at most as many as may act, by demand. */
  ready?: number | undefined;
  /** Frozen ones kept behind the hot ones of each image; by default by demand, and none where `ready` is given. */
  frozen?: number | undefined;
  /** Processors in each group of replicas; by default all of a NUMA node. */
  groupCpus?: number | undefined;
  /** K: replicas that may act in each group; by default what its processors carry. */
  perGroup?: number | undefined;
  /** Whether the kernel may merge the memory of replicas (KSM). */
  mergeMemory?: boolean;
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
  /** Told of what happens in the pool. */
  observer?: PoolObserver;
  /** Where the host is looked at, and where its runners share it: a test has others. */
  kernel?: KernelFolders;
  ledgerFolder?: string;
  pace?: Pace;
  /** Which of several ready replicas is handed out: the first, unless it is drawn by chance, from 0 to 1. */
  draw?: () => number;
}

/**
 * Reaps what an earlier process of this runner id left, finds or makes the templates, and opens a pool that fills in the background.
 * The area stays the caller's, and so does the runner id, which no other process may have at the same time.
 * @throws what a template cannot be made for
 */
export async function createReplicaPool(order: PoolOrder): Promise<VirtualPool> {
  const { area, runnerId, log } = order;
  const [first] = order.images;
  if (!first) throw new Error('no image to serve: build one first');
  const reaped = await reapOwned(area.path, runnerId);
  if (reaped.replicas > 0) log.info(reaped, 'reaped what an earlier process left behind');
  if (reaped.resisted.length > 0) log.error(reaped, 'something that an earlier process left could not be removed');
  const opened = await openEngine(order, first.kernelPath);
  try {
    return await openPool(order, opened);
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

async function openPool(order: PoolOrder, opened: OpenEngine): Promise<VirtualPool> {
  const { engine } = opened;
  const { settings, signal } = order;
  const make = async (image: ImageFiles, until: AbortSignal): Promise<Template> => {
    let built = false;
    const template = await ensureTemplate(
      engine,
      image,
      (progress) => {
        built ||= progress.phase !== 'waiting';
        order.onProgress?.({ ...progress, image: image.name });
      },
      until,
    );
    if (built) order.observer?.built(image.name);
    return template;
  };
  const templates: Template[] = [];
  for (const image of order.images) templates.push(await make(image, signal));
  await collectTemplates(engine, templates);
  const learners = await Promise.all(templates.map((template) => Learner.open(engine, template)));

  const parallel = Math.max(1, Math.floor(availableParallelism() / 2));
  const makeStocks: StockMaker = (keeper) =>
    templates.map((template, index) => {
      const learner = learners[index] as Learner;
      const rebuild = (closing: AbortSignal): Promise<Template> => make(template.image, closing);
      const shelf: Shelf = new Shelf(engine, template, parallel, rebuild, {
        changed: keeper.changed,
        admit: (kind) => keeper.admit(stock, kind),
        ...{
          seat: keeper.seat,
          stranded: keeper.stranded,
          ranking: () => drawn(keeper.ranking(), order.draw),
          restFactor: keeper.restFactor,
        },
        cloned: (milliseconds) => {
          learner.cloned(milliseconds);
          order.observer?.cloned(template.image.name, milliseconds);
        },
        leased: (replica) => void learner.leased(replica).catch(() => undefined),
        ending: (replica) => learner.ended(replica).catch(() => undefined),
      });
      const stock = new Stock(shelf, learner);
      return stock;
    });
  const { acting, ready, frozen, perGroup, diskFloorBytes } = settings;
  const groups = new CpuGroups(planGroups(await cpuTopology(), settings.groupCpus ?? null), perGroup ?? null);
  const kernel = order.kernel ?? KERNEL;
  const folder = order.ledgerFolder ?? ledgerFolder(engine.runRoot);
  const household = {
    ...{ acting, ready, frozen, perGroup, groups: groups.all.length },
    ...{ diskFloorBytes, kernel, ledgerFolder: folder, pace: order.pace },
  };
  return new VirtualPool(engine, makeStocks, household, groups, opened, order.observer);
}

type Ranking = ReturnType<ShelfKeeper['ranking']>;

function drawn(ranking: Ranking, draw: (() => number) | undefined): Ranking {
  return draw ? (replica) => ranking(replica) + draw() : ranking;
}
