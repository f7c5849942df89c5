import os from 'node:os';
import { describeImage, listImages } from '../../images/store.ts';
import { missingPackages } from '../../infra/packages.ts';
import { findBuilt } from '../../infra/tools.ts';
import { BusRefused } from '../bus/errors.ts';
import { openBus } from '../bus/index.ts';
import type { Config } from '../host/config.ts';
import { createLog } from '../host/log.ts';
import { probe } from '../qemu/accelerator.ts';
import { findQemu, type QemuBinary } from '../qemu/binary.ts';
import { chooseMachineUser } from '../qemu/machine-user.ts';
import { type Capacity, costOf, planCapacity } from '../replica/capacity.ts';
import { basisOf, knownImages, roomNow } from '../replica/host-forecast.ts';
import { availableMemory, type HostNow, hostNow } from '../replica/host-now.ts';
import { examineIsolation } from '../replica/isolation.ts';
import { type LedgerEntry, ledgerFolder, readLedger } from '../replica/ledger.ts';
import { openRunRoot } from '../replica/run-root.ts';
import { openArea } from '../storage/area.ts';
import { ObjectStore } from '../storage/s3.ts';
import { isRoot } from '../system/capabilities.ts';
import { findTool } from '../system/find-tool.ts';
import { makeFolder } from '../system/make-folder.ts';
import { clientConfig } from './client.ts';
import { examineCloning } from './doctor-cloning.ts';
import { messageOf } from './error.ts';
import { asCliError } from './explain.ts';
import { HOST_PACKAGES } from './install.ts';

/** What one check found. `note`: it works, and a person should know something. */
export interface Finding {
  what: string;
  verdict: 'fine' | 'note' | 'wrong';
  found: string;
  /** What it means, or what to do. */
  remedy?: string;
}

/** A check that takes a while, before it is made. */
export interface Pending {
  what: string;
  pending: string;
}

const MINIMUM_NODE = [20, 19] as const;
const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** Examines this machine, cheapest first. Each check stands alone: one that fails keeps no other from being made. */
export async function* examineHost(config: Config, signal: AbortSignal): AsyncGenerator<Finding | Pending> {
  yield examineNode();
  yield await examineTools();
  yield await examineGo();
  yield await examineStack(config);
  const [qemu, found] = await examineQemu();
  yield found;
  if (qemu) yield { what: 'accelerator', pending: 'booting a tiny guest under KVM, up to half a minute' };
  const accelerator = qemu ? await examineAccelerator(qemu, config, signal) : null;
  if (accelerator) yield accelerator.finding;
  if (qemu) yield await examineConfinement(config);
  const area = await examineArea(config, accelerator?.accelerator ?? 'tcg', signal);
  yield area.finding;
  yield await examineRoom(config, area.room);
  yield await examineImages(config);
  // Where the data directory is none there is no local stack either.
  const reached = await clientConfig().catch(() => config);
  yield await examineBus(reached);
  yield await examineStorage(reached);
}

function examineNode(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const enough = major > MINIMUM_NODE[0] || (major === MINIMUM_NODE[0] && minor >= MINIMUM_NODE[1]);
  return {
    what: 'node',
    verdict: enough ? 'fine' : 'wrong',
    found: process.versions.node,
    ...(enough ? {} : { remedy: `install Node ${MINIMUM_NODE.join('.')} or newer` }),
  };
}

async function examineTools(): Promise<Finding> {
  const missing = await missingPackages(HOST_PACKAGES);
  if (missing.length === 0) return { what: 'packages', verdict: 'fine', found: 'every tool is there' };
  return {
    what: 'packages',
    verdict: 'wrong',
    found: `missing: ${missing.join(', ')}`,
    remedy: `apt-get install --no-install-recommends ${missing.join(' ')} (gymbus up and demo do it themselves)`,
  };
}

async function examineGo(): Promise<Finding> {
  const go = await findTool('go');
  if (go)
    return { what: 'go', verdict: 'fine', found: `${go}; builds nats-server and the S3 server of the local stack` };
  return {
    what: 'go',
    verdict: 'note',
    found: 'not on PATH',
    remedy:
      'only the local stack (up, demo) needs it: it builds nats-server and the S3 server; https://go.dev/doc/install',
  };
}

async function examineStack({ cacheDir }: Config): Promise<Finding> {
  const servers = await Promise.all(
    (['nats-server', 'versitygw'] as const).map(async (name) => ({ name, built: await findBuilt(name, cacheDir) })),
  );
  const found = servers.map(({ name, built }) =>
    built ? `${name} ${built.version} at ${built.file}` : `no ${name} yet`,
  );
  const complete = servers.every(({ built }) => built !== null);
  return {
    what: 'local stack',
    verdict: complete ? 'fine' : 'note',
    found: found.join(', '),
    ...(complete
      ? {}
      : { remedy: 'gymbus up and demo build what is missing; a runner of another NATS and S3 needs neither' }),
  };
}

async function examineQemu(): Promise<[QemuBinary | null, Finding]> {
  try {
    const qemu = await findQemu();
    return [qemu, { what: 'qemu', verdict: 'fine', found: `${qemu.version} at ${qemu.path}` }];
  } catch (error) {
    return [null, { what: 'qemu', verdict: 'wrong', found: messageOf(error) }];
  }
}

async function examineAccelerator(
  qemu: QemuBinary,
  config: Config,
  signal: AbortSignal,
): Promise<{ accelerator: 'kvm' | 'tcg'; finding: Finding }> {
  const [image] = await listImages(config.cacheDir);
  // One that cannot be had is the finding of the isolation check; guests do not run as anybody else then.
  const user = await chooseMachineUser(config.qemuUser, { make: false }).then(
    (choice) => choice.user,
    () => null,
  );
  const { accelerator, reason } = await probe({ qemu, kernelPath: image?.kernelPath ?? null, user, signal });
  const finding: Finding =
    accelerator === 'kvm'
      ? { what: 'accelerator', verdict: 'fine', found: `KVM: ${reason}` }
      : {
          what: 'accelerator',
          verdict: 'note',
          found: `software emulation (TCG): ${reason}`,
          remedy:
            'everything works, more slowly; for speed use a machine, or a cloud instance, on which guests run under KVM',
        };
  return { accelerator, finding };
}

async function examineConfinement({ qemuUser, runnerId }: Config): Promise<Finding> {
  const what = 'isolation';
  try {
    const { user, limits, bounded } = await examineIsolation({ qemuUser, runnerId });
    const found = `${user}; ${limits}`;
    if (qemuUser === 'root' && isRoot()) {
      const remedy =
        'what breaks out of a guest is root on this host: unset GYMBUS_QEMU_USER, unless this host is for that';
      return { what, verdict: 'note', found, remedy };
    }
    if (bounded) return { what, verdict: 'fine', found };
    const remedy =
      'everything works; replicas share the host more strictly where a runner is root or has cgroups delegated to it';
    return { what, verdict: 'note', found, remedy };
  } catch (error) {
    return { what, verdict: 'wrong', found: messageOf(error) };
  }
}

/** The host as it was while the area was open. */
interface AreaRoom {
  now: HostNow;
  capacity: Capacity;
}

async function examineArea(
  config: Config,
  accelerator: 'kvm' | 'tcg',
  signal: AbortSignal,
): Promise<{ finding: Finding; room: AreaRoom | null }> {
  try {
    await makeFolder(config.dataDir);
    await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal);
    const finding = await examineCloning(area);
    const now = hostNow(area.path);
    const room = { now, capacity: await capacityOf(config, area.path, now, accelerator) };
    return { finding, room };
  } catch (error) {
    signal.throwIfAborted();
    return {
      finding: { what: 'reflink', verdict: 'wrong', found: asCliError(error)?.message ?? messageOf(error) },
      room: null,
    };
  }
}

/** As a runner with these settings would plan it, from what replicas were measured to need. */
async function capacityOf(config: Config, area: string, now: HostNow, accelerator: 'kvm' | 'tcg'): Promise<Capacity> {
  const [image] = await listImages(config.cacheDir);
  const { name = 'unknown', digest = '', manifest } = image ?? {};
  const known = await knownImages(area, [{ name, digest, memoryMib: manifest?.memory_mib ?? 1_024 }], accelerator);
  const { estimates } = basisOf(known, 0);
  return planCapacity(await roomNow(now, await liveRunners(), config.groupCpus), costOf(estimates), config);
}

async function liveRunners(): Promise<LedgerEntry[]> {
  return readLedger(ledgerFolder(await openRunRoot()));
}

async function examineRoom(config: Config, area: AreaRoom | null): Promise<Finding> {
  const memoryBytes = area?.now.memoryBytes ?? availableMemory();
  const cpus = os.availableParallelism();
  const room = `${cpus} CPUs, ${gib(memoryBytes)} of memory available`;
  if (area === null) return { what: 'room', verdict: 'note', found: room };
  const { diskBytes } = area.now;
  const { acting, bound } = area.capacity;
  const runners = (await liveRunners()).map(
    (entry) => `\nrunner ${entry.runner} has ${entry.acting} acting, ${entry.hot} hot, ${entry.frozen} frozen`,
  );
  const found = `${room}, ${gib(diskBytes)} of disk free; ${acting} replicas may act at once, bound by ${bound}${runners.join('')}`;
  if (diskBytes >= config.diskFloorBytes) return { what: 'room', verdict: 'fine', found };
  return {
    what: 'room',
    verdict: 'wrong',
    found: `${gib(diskBytes)} of disk free, floor is ${gib(config.diskFloorBytes)}`,
    remedy: 'free some disk, point GYMBUS_DATA at a larger file system, or lower GYMBUS_DISK_FLOOR_GIB',
  };
}

async function examineImages(config: Config): Promise<Finding> {
  const images = await listImages(config.cacheDir);
  if (images.length === 0) {
    const remedy = 'gymbus image build makes them, gymbus image pull fetches them from the bucket';
    return { what: 'images', verdict: 'note', found: `none in ${config.cacheDir}`, remedy };
  }
  // The newest first: what a runner takes that names no digest.
  const newest = images.filter((image, index) => images.findIndex(({ name }) => name === image.name) === index);
  const older = images.filter((image) => !newest.includes(image));
  const bytes = older.reduce((sum, { manifest }) => sum + manifest.disk_allocated_bytes, 0);
  return {
    what: 'images',
    verdict: 'fine',
    found: newest.map(describeImage).join('\n'),
    ...(older.length === 0
      ? {}
      : {
          remedy: `${older.length} older in ${config.cacheDir}/images take ${gib(bytes)}; gymbus image gc removes what nobody needs`,
        }),
  };
}

async function examineBus(config: Config): Promise<Finding> {
  try {
    const log = createLog({ level: 'error', format: 'json' });
    await using bus = await openBus({ ...config.nats, name: 'gymbus doctor', log, patienceMs: 0 });
    return { what: 'nats', verdict: 'fine', found: `nats-server ${bus.nc.info?.version} at ${bus.nc.getServer()}` };
  } catch (error) {
    // No runner waits for a server that it will never take.
    if (error instanceof BusRefused && process.env.NATS_URL) {
      return { what: 'nats', verdict: 'wrong', found: messageOf(error) };
    }
    const remedy = 'a runner waits for it; gymbus up starts a local one';
    return { what: 'nats', verdict: 'note', found: messageOf(error), remedy };
  }
}

async function examineStorage(config: Config): Promise<Finding> {
  using store = new ObjectStore(config.s3);
  try {
    await store.probe({ patienceMs: 0 });
    return { what: 's3', verdict: 'fine', found: `bucket ${store.bucket} at ${store.endpoint}` };
  } catch (error) {
    const remedy = 'AWS_ENDPOINT_URL says where it is where it is not AWS; gymbus up starts a local one';
    return { what: 's3', verdict: 'note', found: messageOf(error), remedy };
  }
}
