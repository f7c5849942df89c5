import { chmod, type FileHandle, mkdir, open, rename, rm, rmdir, stat, statfs, truncate } from 'node:fs/promises';
import path from 'node:path';
import { ExecaError, execa } from 'execa';
import { isRootWithoutMount, MOUNT_REMEDY } from '../system/capabilities.ts';
import { findTool } from '../system/find-tool.ts';
import { lockFile } from '../system/lock.ts';
import { canReflink, OVERLAY_REMEDY, OVERLAY_TOOL } from './clone.ts';

/**
 * Where clones live: a folder whose files can share blocks. All runners of a host that have the same data directory share it.
 *
 *   <data>/area            the folder; itself, where the file system can reflink, else the mount point of
 *   <data>/area.xfs        a sparse file with an XFS file system in it, attached through a loop device
 *   <data>/area.lock       held while it is being mounted or unmounted
 *
 * Where neither is to be had (no right to mount, no XFS) it is a plain folder, and disks are overlays over the template's.
 *
 * Each process keeps a file of it open. The last one to leave unmounts it: the kernel refuses that (EBUSY) to all others, so it is
 * the kernel that counts. A process that is killed leaves the mount behind, and the next one finds it.
 */
export interface StorageArea extends AsyncDisposable {
  readonly path: string;
  /** In one line: which of the three it is. */
  readonly description: string;
  /** How a disk is cloned here. */
  readonly cloning: 'reflink' | 'overlay';
  /** Bytes that may still be written, by whatever ends first: the room inside or, for the loop-mounted file, under it. */
  freeBytes(): Promise<number>;
}

/** No place for clones can be had here; the message says what to do about it. */
export class AreaUnavailable extends Error {
  override readonly name = 'AreaUnavailable';
}

/** Made sparse, so that an area larger than what is free now only promises. Below this it is of no use. */
const MIN_AREA_BYTES = 4 * 2 ** 30;
/** Mounting and making the file system take a second. */
const TOOL_DEADLINE_MS = 60_000;
const LOCK_DEADLINE_MS = 120_000;

export interface AreaSettings {
  dataDir: string;
  /** Left free on the file system under the area when its size is chosen. */
  floorBytes: number;
  /** Overlays also where blocks could be shared: to compare them, and to try them. */
  overlays?: boolean;
}

/** A file system that can reflink cannot be mounted here. */
class NoMount extends Error {
  override readonly name = 'NoMount';
}

/** @throws AreaUnavailable */
export async function openArea(settings: AreaSettings, signal?: AbortSignal): Promise<StorageArea> {
  const { dataDir } = settings;
  const folder = path.join(dataDir, 'area');
  await mkdir(folder, { recursive: true });
  await using _lock = await lockFile(path.join(dataDir, 'area.lock'), { waitMs: LOCK_DEADLINE_MS, signal });
  const mounted = await isMountPoint(folder);
  // Guests' disks and trajectories are nobody else's. QEMU, which may be another user, gets open files.
  const owned = async (area: StorageArea): Promise<StorageArea> => {
    await chmod(folder, 0o700);
    return area;
  };
  if (!mounted && settings.overlays) return owned(await overlayArea(folder, 'as was asked for'));
  if (!mounted && (await canReflink(dataDir))) {
    return owned(plainArea(folder, 'reflink', `${folder}, whose file system can reflink`));
  }
  try {
    if (!mounted) await mountFile(path.join(dataDir, 'area.xfs'), folder, settings.floorBytes);
  } catch (error) {
    if (!(error instanceof NoMount)) throw error;
    return owned(await overlayArea(folder, error.message));
  }
  return owned(await mountedArea(dataDir, folder));
}

function plainArea(folder: string, cloning: StorageArea['cloning'], what: string): StorageArea {
  return {
    path: folder,
    ...{ cloning, description: `storage area: ${what}` },
    freeBytes: () => freeBytes(folder),
    [Symbol.asyncDispose]: async () => undefined,
  };
}

/** @param why no blocks can be shared */
async function overlayArea(folder: string, why: string): Promise<StorageArea> {
  if (!(await findTool(OVERLAY_TOOL))) {
    throw new AreaUnavailable(
      `${why}; for overlays instead ${OVERLAY_TOOL} is missing: ${OVERLAY_REMEDY}, or set GYMBUS_DATA to a folder on XFS or btrfs`,
    );
  }
  return plainArea(folder, 'overlay', `${folder}, disks are qcow2 overlays, slower to make: ${why}`);
}

async function mountedArea(dataDir: string, folder: string): Promise<StorageArea> {
  const holder = await open(path.join(folder, '.in-use'), 'a');
  let closed: Promise<void> | undefined;
  return {
    path: folder,
    cloning: 'reflink',
    description: `storage area: ${folder}, an XFS file system in ${dataDir}/area.xfs (${dataDir} itself cannot reflink)`,
    freeBytes: async () => Math.min(await freeBytes(folder), await freeBytes(dataDir)),
    [Symbol.asyncDispose]: () => {
      closed ??= leave(dataDir, folder, holder);
      return closed;
    },
  };
}

async function leave(dataDir: string, folder: string, holder: FileHandle): Promise<void> {
  await using _lock = await lockFile(path.join(dataDir, 'area.lock'), { waitMs: LOCK_DEADLINE_MS });
  await holder.close();
  try {
    // The loop device was attached by mount, so that it goes with the mount.
    await tool('umount', [folder]);
  } catch (error) {
    // Busy: another runner is in it, and will unmount it when it leaves.
    if (await isMountPoint(folder)) {
      if (!/busy/i.test(String((error as ExecaError).stderr))) throw error;
    }
  }
}

async function mountFile(file: string, folder: string, floorBytes: number): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new NoMount(`${path.dirname(folder)} cannot reflink, and only root can mount a file system that can`);
  }
  if (isRootWithoutMount()) {
    throw new NoMount(
      `${path.dirname(folder)} cannot reflink, and a file system that can has to be mounted: ${MOUNT_REMEDY}`,
    );
  }
  if (!(await exists(file))) await makeFile(file, floorBytes);
  try {
    await tool('mount', ['-t', 'xfs', '-o', 'loop,noatime,discard', file, folder]);
  } catch (error) {
    const why = reason(error);
    const remedy = /denied|not permitted/i.test(why)
      ? 'the container, or a security module of this machine, forbids root to mount it: run it on the host or in a privileged container'
      : 'it needs loop devices and XFS in the kernel';
    throw new NoMount(`${file} cannot be mounted (${why}): ${remedy}`, { cause: error });
  }
}

/** Made under another name first: one half-made is never mounted. */
async function makeFile(file: string, floorBytes: number): Promise<void> {
  const parent = path.dirname(file);
  const bytes = Math.floor(((await freeBytes(parent)) - floorBytes) / 2 ** 30) * 2 ** 30;
  if (bytes < MIN_AREA_BYTES) {
    throw new AreaUnavailable(
      `${parent} has too little room for a storage area: ${gib(bytes + floorBytes)} GiB free, ${gib(floorBytes)} GiB of it kept free, ${gib(MIN_AREA_BYTES)} GiB needed`,
    );
  }
  const draft = `${file}.new`;
  await rm(draft, { force: true });
  await (await open(draft, 'w', 0o600)).close();
  await truncate(draft, bytes);
  try {
    await tool('mkfs.xfs', ['-q', '-m', 'reflink=1', draft]);
  } catch (error) {
    await rm(draft, { force: true });
    throw new AreaUnavailable(
      `mkfs.xfs failed (${reason(error)}): the storage area needs the package xfsprogs, or GYMBUS_DATA on XFS or btrfs`,
      { cause: error },
    );
  }
  await rename(draft, file);
}

/** Removes an area for good: what a test leaves behind. @throws when somebody is in it */
export async function removeArea(dataDir: string): Promise<void> {
  const folder = path.join(dataDir, 'area');
  if (!(await exists(folder))) return;
  if (await isMountPoint(folder)) await tool('umount', [folder]);
  await rm(path.join(dataDir, 'area.xfs'), { force: true });
  await rmdir(folder).catch(() => rm(folder, { recursive: true, force: true }));
}

async function isMountPoint(folder: string): Promise<boolean> {
  const [inside, above] = await Promise.all([stat(folder), stat(path.dirname(folder))]);
  return inside.dev !== above.dev;
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize;
}

async function exists(file: string): Promise<boolean> {
  return stat(file).then(
    () => true,
    () => false,
  );
}

/** The tools of mounting live in sbin, which an unprivileged PATH may lack. */
async function tool(name: string, args: string[]): Promise<void> {
  await execa(name, args, {
    timeout: TOOL_DEADLINE_MS,
    env: { PATH: `${process.env.PATH ?? ''}:/usr/sbin:/sbin`, LC_ALL: 'C' },
  });
}

function reason(error: unknown): string {
  if (!(error instanceof ExecaError)) return (error as Error).message;
  if (error.code === 'ENOENT') return 'not installed';
  // What mount says next is where else to look.
  return (
    String(error.stderr || error.shortMessage)
      .trim()
      .split('\n')[0] ?? ''
  );
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
