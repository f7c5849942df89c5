import { randomUUID } from 'node:crypto';
import { open, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Hardware } from '../qemu/arguments.ts';
import { HelperGuest } from '../qemu/guest.ts';
import { Machine } from '../qemu/machine.ts';
import { saveState } from '../qemu/migration.ts';
import { isBlack, same, writePpm } from '../qemu/picture.ts';
import { copySparse } from '../storage/clone.ts';
import { StorageFull } from '../storage/errors.ts';
import { type BuildPhase, type BuildProgress, ProgressReporter } from './build-progress.ts';
import { gib } from './capacity.ts';
import type { Engine } from './engine.ts';
import { DESKTOP_PASSWORD, type ImageFiles } from './image-files.ts';
import { confineTemplate } from './isolation.ts';
import { park } from './parking.ts';
import { awaitDesktop } from './readiness.ts';
import { runFolderOf, saveFolderOf } from './run-root.ts';
import { stampOf, type TemplateRecord } from './template-record.ts';

export interface BuildOrder {
  key: string;
  image: ImageFiles;
  hardware: Hardware;
  /** Where the template is made. */
  folder: string;
  /** Of its QEMU. */
  uuid: string;
}

/** A guest under software emulation on a busy host boots in two minutes; the image's own limit is for the desktop after it. */
const BOOT_DEADLINE_MS = 300_000;
const CALL_DEADLINE_MS = 60_000;
/** A desktop that never stands still (a video, a blinking cursor) cannot be a template. */
const SETTLE_DEADLINE_MS = 120_000;
/** What a boot writes to its disk, device state, pictures. */
const SLACK_BYTES = 128 * 2 ** 20;

/** Boots an image, brings it to rest and saves it into the order's folder. Leaves no process behind, whatever happens. */
export async function buildTemplate(
  engine: Engine,
  order: BuildOrder,
  progress: (progress: BuildProgress) => void,
  signal: AbortSignal,
): Promise<void> {
  const { image, folder, hardware } = order;
  const started = performance.now();
  const log = engine.log.child({ template: order.key, image: image.name });
  using reporter = new ProgressReporter(progress);
  const report = (phase: BuildPhase, message: string): void => {
    log.debug({ phase, elapsed_ms: Math.round(performance.now() - started) }, 'template build');
    reporter.enter(phase, message);
  };
  await requireRoom(engine, order);
  report('copying', `copying the disk of ${image.name}`);
  const diskPath = path.join(folder, 'disk.raw');
  const memoryPath = path.join(folder, 'ram');
  await copySparse(image.diskPath, diskPath, signal);
  report('booting', `booting ${image.name} (${hardware.accelerator})`);
  const runFolder = runFolderOf(engine, order.uuid);
  const bootedAt = performance.now();
  const confinement = await confineTemplate(engine.isolation, hardware);
  const machine = await Machine.start(
    {
      name: `gymbus-template-${order.uuid.slice(0, 8)}`,
      qemuPath: engine.qemu.path,
      launcher: engine.launcher,
      hardware,
      identity: { uuid: order.uuid, generation: randomUUID() },
      memoryPath,
      diskPath,
      runFolder,
      start: {
        kind: 'boot',
        kernelPath: image.kernelPath,
        initrdPath: image.initrdPath,
        cmdline: image.manifest.cmdline,
      },
      statePath: null,
      confinement,
    },
    signal,
  );
  const either = AbortSignal.any([signal, machine.lost]);
  try {
    await machine.helper.waitUp(BOOT_DEADLINE_MS, either);
    report('desktop', 'waiting for the desktop');
    const guest = new HelperGuest(machine.helper, hardware.screen, {
      name: image.manifest.user,
      password: DESKTOP_PASSWORD,
    });
    await awaitDesktop(machine, guest, image.manifest.readiness, either);
    const bootMs = performance.now() - bootedAt;
    for (const command of image.manifest.warmup) {
      report('warming', `warming up: ${command.argv.join(' ')}`);
      const result = await guest.exec(
        { argv: command.argv, user: command.user, timeoutMs: command.timeout_s * 1_000 },
        either,
      );
      if (result.returncode !== 0 || result.timedOut) {
        const how = result.timedOut ? `took more than ${command.timeout_s} s` : `exited with ${result.returncode}`;
        throw new Error(`warm-up command ${command.argv.join(' ')} ${how}: ${result.stderr.toString().trim()}`);
      }
    }
    report('settling', 'waiting for the desktop to stand still');
    await park(machine, either);
    await standStill(machine, image, either);
    const identity = {
      machine_id: await line(guest, '/etc/machine-id', either),
      boot_id: await line(guest, '/proc/sys/kernel/random/boot_id', either),
      hostname: await line(guest, '/proc/sys/kernel/hostname', either),
    };
    await standStill(machine, image, either);
    await machine.helper.call('arm', {}, z.unknown(), { deadlineMs: CALL_DEADLINE_MS, signal: either });
    await machine.pause();
    report('saving', 'saving memory and device state');
    const golden = await machine.screen.picture(either);
    if (isBlack(golden)) throw new Error(`the desktop of ${image.name} is black`);
    await writeFile(path.join(folder, 'golden.ppm'), writePpm(golden));
    const saveFolder = saveFolderOf(engine, order.uuid);
    await saveState(machine.qmp, saveFolder, confinement.user, path.join(folder, 'state'), either);
    await machine.kill('template saved');
    await flush(memoryPath);
    await flush(diskPath);
    const record: TemplateRecord = {
      schema: 'gymbus.template.v1',
      key: order.key,
      image: image.name,
      image_digest: image.digest,
      qemu_version: engine.qemu.version,
      accelerator: hardware.accelerator,
      ...identity,
      memory: await stampOf(memoryPath),
      state_bytes: (await stat(path.join(folder, 'state'))).size,
      boot_ms: Math.round(bootMs),
      build_ms: Math.round(performance.now() - started),
      created_at: new Date().toISOString(),
    };
    await writeFile(path.join(folder, 'template.json'), `${JSON.stringify(record, null, 2)}\n`, { flush: true });
    report('done', `template of ${image.name} made`);
  } catch (error) {
    const tail = machine.serial.subarray(-2_000).toString('utf8').trim();
    const cause = machine.cause ?? (error as Error).message;
    throw new Error(`template of ${image.name} cannot be made: ${cause}${tail ? `\nserial console:\n${tail}` : ''}`, {
      cause: error,
    });
  } finally {
    await machine.kill('template build ended');
  }
}

/**
 * A guest whose memory file finds no room ends QEMU with SIGBUS, which tells nobody what to do.
 * @throws StorageFull before anything is made
 */
async function requireRoom({ area }: Engine, { image, hardware }: BuildOrder): Promise<void> {
  const disk = await stat(image.diskPath);
  const needed = disk.blocks * 512 + hardware.memoryMib * 2 ** 20 + SLACK_BYTES;
  const free = await area.freeBytes();
  if (free >= needed) return;
  throw new StorageFull(
    `the template of ${image.name} may need ${gib(needed)} GiB in ${area.path}, and ${gib(free)} GiB are free: free some, or point GYMBUS_DATA at a larger file system`,
  );
}

/** Waits until pictures as far apart as the image asks for are the same. */
export async function standStill(machine: Machine, image: ImageFiles, signal: AbortSignal): Promise<void> {
  const { equal_pictures_ms: intervalMs } = image.manifest.readiness;
  const end = performance.now() + SETTLE_DEADLINE_MS;
  let before = await machine.screen.picture(signal);
  for (;;) {
    await sleep(intervalMs, undefined, { signal });
    const now = await machine.screen.picture(signal);
    if (same(before, now, image.manifest.volatile_regions)) return;
    if (performance.now() > end) throw new Error('the desktop never stands still');
    before = now;
  }
}

async function line(guest: HelperGuest, file: string, signal: AbortSignal): Promise<string> {
  return (await guest.readFile(file, { maxBytes: 4_096 }, signal)).toString('utf8').trim();
}

async function flush(file: string): Promise<void> {
  const handle = await open(file, 'r+');
  await handle.sync();
  await handle.close();
}
