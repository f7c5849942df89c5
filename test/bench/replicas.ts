import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { pino } from 'pino';
import type { Image } from '../../images/store.ts';
import { table } from '../../runner/cli/table.ts';
import { readConfig } from '../../runner/host/config.ts';
import { HelperGuest } from '../../runner/qemu/guest.ts';
import { Machine } from '../../runner/qemu/machine.ts';
import { createReplicaPool } from '../../runner/replica/create-pool.ts';
import type { Engine } from '../../runner/replica/engine.ts';
import { DESKTOP_PASSWORD } from '../../runner/replica/image-files.ts';
import { confineTemplate } from '../../runner/replica/isolation.ts';
import { openEngine } from '../../runner/replica/open-engine.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { awaitDesktop } from '../../runner/replica/readiness.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { ensureTemplate, type Template } from '../../runner/replica/template.ts';
import { standStill } from '../../runner/replica/template-build.ts';
import { imageHardware } from '../../runner/replica/template-key.ts';
import { ownMemory } from '../../runner/replica/usage.ts';
import { openArea } from '../../runner/storage/area.ts';
import { copySparse, reflink } from '../../runner/storage/clone.ts';
import { type Figure, median, quantile } from './figure.ts';
import { kindFigures } from './kinds.ts';

const RUNNER = 'bench-replicas';
/** So many that the slowest hundredth of them is one. */
const CLONES = 100;
const GATED = 20;
const CLAIMS = 20;
const DISKS = 20;
const FROZEN = 16;
/** QEMU gives back what it needed for starting when it has been idle for a moment. */
const REST_MS = 2_000;
const COPY_DEADLINE_MS = 15 * 60_000;
const mib = 2 ** 20;

/** What replicas cost in time and memory, each beside what it stands for, measured in the same run. */
export async function replicaFigures(image: Image, cacheDir: string, signal: AbortSignal): Promise<Figure[]> {
  const config = readConfig(process.env);
  const log = pino({ level: 'silent' });
  await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal);
  const { accelerator, qemuUser, diskFloorBytes } = config;
  const settings = { accelerator, qemuUser, diskFloorBytes, cacheDir };
  await using opened = await openEngine({ area, runnerId: RUNNER, settings, log, signal }, image.kernelPath);
  const { engine } = opened;
  const template = await ensureTemplate(engine, image, () => undefined, signal);

  const reboot = await timeReboot(engine, image, signal);
  const clone = await timeClones(engine, template, signal);
  const frozenMib = await frozenMemory(engine, template);
  const kinds = await kindFigures(engine, template, image.manifest.disk_allocated_bytes, signal);
  console.log(`What a replica takes, by its kind:\n${table(kinds.rows)}\n`);
  const disk = await timeDisks(engine, template, signal);
  await using pool = await createReplicaPool({
    ...{ images: [image], area, runnerId: RUNNER, log, signal },
    settings: { accelerator: config.accelerator, diskFloorBytes: config.diskFloorBytes, cacheDir, acting: 1, ready: 2 },
  });
  const claimMs = await timeClaims(pool, image.name, signal);
  const beside = (figure: string, value: number, unit: string, baseline: number, goal: Goal): Figure => {
    const ratio = baseline / value;
    const met = value < (goal.below ?? Number.POSITIVE_INFINITY) && ratio > (goal.times ?? 0);
    return { figure, value, unit, baseline, ratio, goal: inWords(goal, unit), met };
  };
  return [
    beside('clone to first screenshot', median(clone.picturesMs), 'ms', reboot.ms, { below: 100, times: 400 }),
    beside('the same, of 99 in 100', quantile(clone.picturesMs, 0.99), 'ms', reboot.ms, { below: 300 }),
    beside('clone, gate, first screenshot', clone.gatedMs, 'ms', reboot.ms, { times: 20 }),
    beside('warm claim to first screenshot', claimMs, 'ms', reboot.ms, { below: 30 }),
    beside('disk clone, against a sparse copy', disk.cloneMs, 'ms', disk.sparseMs, { times: 370 }),
    beside('disk clone, against a dense copy', disk.cloneMs, 'ms', disk.denseMs, { times: 370 }),
    beside('memory per frozen replica', frozenMib, 'MiB', reboot.residentMib, { below: 16 }),
    ...kinds.figures,
  ];
}

interface Goal {
  below?: number;
  /** At least so many times less than the baseline. */
  times?: number;
}

function inWords({ below, times }: Goal, unit: string): string {
  return [...(below ? [`< ${below} ${unit}`] : []), ...(times ? [`> ${times}x`] : [])].join(', ');
}

/** What a reset costs without templates: a fresh copy of the disk, a boot, a desktop at rest and its picture. */
async function timeReboot(
  engine: Engine,
  image: Image,
  signal: AbortSignal,
): Promise<{ ms: number; residentMib: number }> {
  const folder = path.join(engine.area.path, 'bench', randomUUID());
  await mkdir(folder, { recursive: true });
  const hardware = imageHardware(image, engine.accelerator);
  const start = performance.now();
  await copySparse(image.diskPath, path.join(folder, 'disk.raw'), signal);
  const uuid = randomUUID();
  const machine = await Machine.start({
    ...{ name: 'gymbus-bench', qemuPath: engine.qemu.path, launcher: engine.launcher, hardware },
    identity: { uuid, generation: randomUUID() },
    ...{ memoryPath: path.join(folder, 'ram'), diskPath: path.join(folder, 'disk.raw'), statePath: null },
    runFolder: path.join(engine.runRoot, uuid),
    confinement: await confineTemplate(engine.isolation, hardware),
    start: {
      ...{ kind: 'boot', kernelPath: image.kernelPath, initrdPath: image.initrdPath },
      cmdline: image.manifest.cmdline,
    },
  });
  try {
    const guest = new HelperGuest(machine.helper, hardware.screen, {
      ...{ name: image.manifest.user, password: DESKTOP_PASSWORD },
    });
    await machine.helper.waitUp(300_000, signal);
    await awaitDesktop(machine, guest, image.manifest.readiness, signal);
    await standStill(machine, image, signal);
    await machine.screen.png(signal);
    const ms = performance.now() - start;
    const resident = /^Rss:\s+(\d+)/m.exec(await readFile(`/proc/${machine.pid}/smaps_rollup`, 'utf8'));
    return { ms, residentMib: Number(resident?.[1]) / 1_024 };
  } finally {
    await machine.kill();
    await rm(folder, { recursive: true });
  }
}

async function timeClones(
  engine: Engine,
  template: Template,
  signal: AbortSignal,
): Promise<{ picturesMs: number[]; gatedMs: number }> {
  const pictures: number[] = [];
  const gated: number[] = [];
  for (let n = 0; n < CLONES; n += 1) {
    const start = performance.now();
    await using replica = new VirtualReplica(engine, template);
    await replica.prepare();
    await Promise.all([replica.machine.screen.png(signal), replica.machine.run()]);
    pictures.push(performance.now() - start);
  }
  for (let n = 0; n < GATED; n += 1) {
    const start = performance.now();
    await using replica = new VirtualReplica(engine, template);
    await replica.prepare();
    await replica.lease(signal);
    await replica.screenshot(signal);
    gated.push(performance.now() - start);
  }
  return { picturesMs: pictures, gatedMs: median(gated) };
}

/** Each from a pool that is full and at rest. */
async function timeClaims(pool: VirtualPool, imageName: string, signal: AbortSignal): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < CLAIMS; n += 1) {
    while ((pool.phases().hot ?? 0) < pool.capacity.ready) await sleep(50, undefined, { signal });
    await sleep(200, undefined, { signal });
    const start = performance.now();
    const replica = await pool.reserve(imageName)?.claim(signal);
    await replica?.screenshot(signal);
    if (replica) times.push(performance.now() - start);
    await replica?.discard();
  }
  return median(times);
}

/** Memory that is a replica's own, page tables included. */
async function frozenMemory(engine: Engine, template: Template): Promise<number> {
  const replicas = Array.from({ length: FROZEN }, () => new VirtualReplica(engine, template));
  try {
    for (const replica of replicas) await replica.prepare();
    await sleep(REST_MS);
    const each = replicas.map(({ machine }) => ownMemory(machine.pid) ?? Number.NaN);
    return median(each) / mib;
  } finally {
    await Promise.all(replicas.map((replica) => replica.discard()));
  }
}

async function timeDisks(
  engine: Engine,
  template: Template,
  signal: AbortSignal,
): Promise<{ cloneMs: number; sparseMs: number; denseMs: number }> {
  const folder = path.join(engine.area.path, 'bench', randomUUID());
  await mkdir(folder, { recursive: true });
  try {
    const clones: number[] = [];
    for (let n = 0; n < DISKS; n += 1) {
      const start = performance.now();
      await reflink(template.diskPath, path.join(folder, `clone-${n}`));
      clones.push(performance.now() - start);
    }
    return {
      cloneMs: median(clones),
      sparseMs: await timeCopy(template.diskPath, path.join(folder, 'sparse'), 'always', signal),
      denseMs: await timeCopy(template.diskPath, path.join(folder, 'dense'), 'never', signal),
    };
  } finally {
    await rm(folder, { recursive: true });
  }
}

async function timeCopy(from: string, to: string, sparse: 'always' | 'never', signal: AbortSignal): Promise<number> {
  const start = performance.now();
  await execa('cp', [`--sparse=${sparse}`, '--reflink=never', from, to], {
    ...{ timeout: COPY_DEADLINE_MS, cancelSignal: signal },
  });
  return performance.now() - start;
}
