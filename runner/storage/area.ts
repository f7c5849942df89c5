import { chmod, type FileHandle, mkdir, open, rename, rm, rmdir, stat, statfs, truncate } from 'node:fs/promises';
import path from 'node:path';
import { ExecaError, execa } from 'execa';
import { isRootWithoutMount, MOUNT_REMEDY } from '../system/capabilities.ts';
import { lockFile } from '../system/lock.ts';
import { canReflink } from './clone.ts';

/**
 * Where clones live: a folder whose files can share blocks. All runners of a host that have the same data directory share it.
 *
 *   <data>/area            the folder; itself, where the file system can reflink, else the mount point of
 *   <data>/area.xfs        a sparse file with an XFS file system in it, attached through a loop device
 *   <data>/area.lock       held while it is being mounted or unmounted
 *
 * Each process keeps a file of it open. The last one to leave unmounts it: the kernel refuses that (EBUSY) to all others, so it is
 * the kernel that counts. A process that is killed leaves the mount behind, and the next one finds it.
 */
export interface StorageArea extends AsyncDisposable {
  readonly path: string;
  /** In one line: which of the two it is. */
  readonly description: string;
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
}

/** @throws AreaUnavailable */
export async function openArea(settings: AreaSettings, signal?: AbortSignal): Promise<StorageArea> {
  const { dataDir } = settings;
  const folder = path.join(dataDir, 'area');
  await mkdir(folder, { recursive: true });
  await using _lock = await lockFile(path.join(dataDir, 'area.lock'), { waitMs: LOCK_DEADLINE_MS, signal });
  const mounted = await isMountPoint(folder);
  const plain = !mounted && (await canReflink(dataDir));
  if (!mounted && !plain) await mountFile(path.join(dataDir, 'area.xfs'), folder, settings.floorBytes);
  // Guests' disks and trajectories are nobody else's. QEMU, which may be another user, gets open files.
  await chmod(folder, 0o700);
  return plain ? plainArea(folder) : mountedArea(dataDir, folder);
}

async function plainArea(folder: string): Promise<StorageArea> {
  return {
    path: folder,
    description: `storage area: ${folder}, whose file system can reflink`,
    freeBytes: () => freeBytes(folder),
    [Symbol.asyncDispose]: async () => undefined,
  };
}

async function mountedArea(dataDir: string, folder: string): Promise<StorageArea> {
  const holder = await open(path.join(folder, '.in-use'), 'a');
  let closed: Promise<void> | undefined;
  return {
    path: folder,
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
    throw new AreaUnavailable(
      `${path.dirname(folder)} cannot reflink, and only root can mount a file system that can: run as root, or set GYMBUS_DATA to a folder on XFS or btrfs`,
    );
  }
  const elsewhere = 'or set GYMBUS_DATA to a folder on XFS or btrfs';
  if (isRootWithoutMount()) {
    throw new AreaUnavailable(
      `${path.dirname(folder)} cannot reflink, and a file system that can has to be mounted: ${MOUNT_REMEDY}; ${elsewhere}`,
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
    throw new AreaUnavailable(`${file} cannot be mounted (${why}): ${remedy}; ${elsewhere}`, { cause: error });
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
