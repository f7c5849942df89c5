import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { buildImage } from '../../images/build.ts';
import { findRecipe } from '../../images/recipes.ts';
import { defaultCacheDir, findImage, type Image } from '../../images/store.ts';
import { createReplicaPool, type PoolOrder, type ReplicaSettings } from '../../runner/replica/create-pool.ts';
import type { Engine } from '../../runner/replica/engine.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { openEngine } from '../../runner/replica/open-engine.ts';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { ensureTemplate, type Template } from '../../runner/replica/template.ts';
import { collectTemplates } from '../../runner/replica/template-collect.ts';
import { type AreaSettings, openArea, type StorageArea } from '../../runner/storage/area.ts';
import { cgroupsOf } from '../support/cgroups.ts';

/** Room the tests leave on the disk. */
const FLOOR_BYTES = 2 ** 31;

export const never = new AbortController().signal;
const cacheDir = defaultCacheDir();
/** The tests' own storage area: its templates are kept from run to run, so that only the first one boots a guest. */
export const dataDir = process.env.GYMBUS_TEST_DATA ?? path.join(cacheDir, 'test-data');
const settings: ReplicaSettings = { accelerator: 'auto', diskFloorBytes: FLOOR_BYTES, cacheDir };
const log = pino({ level: process.env.GYMBUS_LOG_LEVEL ?? 'silent' }, pino.destination(2));

/** This run's own: other runs on the machine have budgets of their own. */
const ledgerFolder = path.join(tmpdir(), 'ledger');

/** A real image, its template and whatever replicas a test makes of it. Disposing it must leave nothing behind, or throws. */
export interface Fixture extends AsyncDisposable {
  readonly engine: Engine;
  readonly image: Image;
  readonly template: Template;
  readonly area: StorageArea;
  /** A replica in the phase asked for. */
  replica(phase: 'frozen' | 'hot' | 'leased', machineId?: string): Promise<VirtualReplica>;
  pool(settings?: Partial<ReplicaSettings>, runnerId?: string, order?: Partial<PoolOrder>): Promise<VirtualPool>;
}

/**
 * @param runnerId of its own for each test file
 * @param own an area other than the one that all tests share
 * @param imageName of a recipe other than the one that most tests are played on
 */
export async function openFixture(
  runnerId: string,
  own: Partial<AreaSettings> = {},
  imageName = 'debian-desktop',
): Promise<Fixture> {
  const image = await testImage(imageName);
  const area = await openArea({ dataDir, floorBytes: FLOOR_BYTES, ...own });
  const order = { area, runnerId, log, signal: never, ledgerFolder };
  const opened = await openEngine({ ...order, settings }, image.kernelPath);
  const { engine } = opened;
  const template = await ensureTemplate(engine, image, () => undefined, never);
  await collectTemplates(engine, [template]);
  const owned: AsyncDisposable[] = [];
  const keep = <T extends AsyncDisposable>(thing: T): T => {
    owned.push(thing);
    return thing;
  };
  return {
    ...{ engine, image, template, area },
    replica: async (phase, machineId) => {
      const replica = keep(new VirtualReplica(engine, template, undefined, machineId));
      await replica.prepare();
      if (phase === 'hot') await replica.thaw();
      if (phase === 'leased') await replica.lease(never);
      return replica;
    },
    pool: async (own = {}, id = runnerId, more = {}) => {
      const whole = { ...order, images: [image], runnerId: id, ...more, settings: { ...settings, ...own } };
      return keep(await createReplicaPool(whole));
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(owned.map((thing) => thing[Symbol.asyncDispose]()));
      const left = await leftovers(engine);
      await opened[Symbol.asyncDispose]();
      await area[Symbol.asyncDispose]();
      if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
    },
  };
}

/** The image as its recipe stands, or the finished one of that name that `GYMBUS_TEST_IMAGE` (name@digest) names. */
async function testImage(name: string): Promise<Image> {
  const reference = process.env.GYMBUS_TEST_IMAGE;
  if (!reference?.startsWith(`${name}@`)) return buildImage(findRecipe(name), { cacheDir });
  const image = await findImage(reference, cacheDir);
  if (!image) throw new Error(`GYMBUS_TEST_IMAGE=${reference} is not in ${cacheDir}`);
  return image;
}

/** Whatever of a runner is still on this host: processes, disks, run folders, cgroups. */
export async function leftovers(engine: Engine): Promise<string[]> {
  const ids = await readdir(replicasFolder(engine.area.path, engine.runnerId)).catch((): string[] => []);
  const processes = (await qemuProcesses()).filter(({ uuid }) => ids.includes(uuid));
  const runFolders = (await readdir(engine.runRoot)).filter((name) => ids.some((id) => id.startsWith(name)));
  return [
    ...ids.map((id) => `replica ${id}`),
    ...processes.map(({ pid }) => `qemu ${pid}`),
    ...runFolders.map((name) => `run folder ${name}`),
    ...(await cgroupsOf(engine.runnerId)).map((folder) => `cgroup ${folder}`),
  ];
}

/** Runs a shell command in a guest, as root or the desktop's user. @returns its standard output, trimmed @throws when it fails */
export async function guestShell(
  replica: VirtualReplica,
  script: string,
  user: 'user' | 'root' = 'user',
): Promise<string> {
  const result = await replica.guest.exec({ argv: ['sh', '-c', script], user, timeoutMs: 60_000 }, never);
  if (result.returncode !== 0 || result.timedOut) {
    throw new Error(`${script}: ${result.timedOut ? 'timed out' : result.returncode} ${result.stderr.toString()}`);
  }
  return result.stdout.toString().trim();
}
