import { constants } from 'node:fs';
import { copyFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { findTool } from '../system/find-tool.ts';
import { asStorageFull, StorageFull } from './errors.ts';

/** A copy of 3 GiB between file systems takes seconds; of a large disk on a slow one, minutes. */
const COPY_DEADLINE_MS = 15 * 60_000;
const OVERLAY_DEADLINE_MS = 30_000;
export const OVERLAY_TOOL = 'qemu-img';
export const OVERLAY_REMEDY = 'apt-get install --no-install-recommends qemu-utils';

/**
 * Clones a file by sharing its blocks, in milliseconds whatever its size.
 * @throws ENOTSUP, EXDEV where the file system cannot; StorageFull. Never falls back to a copy
 */
export async function reflink(source: string, target: string): Promise<void> {
  try {
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL);
  } catch (error) {
    throw asStorageFull(error, target);
  }
}

/**
 * Makes an overlay (qcow2) over a raw file, which is read through it and must not change: for where blocks cannot be shared, some 20 ms.
 * @throws StorageFull; an error that says what to install
 */
export async function overlay(base: string, target: string): Promise<void> {
  const tool = await findTool(OVERLAY_TOOL);
  if (!tool) throw new Error(`${OVERLAY_TOOL} is not installed: ${OVERLAY_REMEDY}`);
  const { failed, stderr, message } = await execa(
    tool,
    ['create', '-q', '-f', 'qcow2', '-F', 'raw', '-b', base, target],
    { reject: false, timeout: OVERLAY_DEADLINE_MS },
  );
  if (!failed) return;
  const why = stderr?.trim() || message || `${OVERLAY_TOOL} failed`;
  throw /No space left|Disk quota/.test(why) ? new StorageFull(`${target}: ${why}`) : new Error(why);
}

/** Copies a file between file systems, holes kept. */
export async function copySparse(source: string, target: string, signal: AbortSignal): Promise<void> {
  await execa('cp', ['--sparse=always', '--reflink=auto', '--', source, target], {
    timeout: COPY_DEADLINE_MS,
    cancelSignal: signal,
  });
}

/** Whether files of this folder can share blocks: found out by doing it. */
export async function canReflink(folder: string): Promise<boolean> {
  const source = path.join(folder, `.reflink-${process.pid}-a`);
  const target = path.join(folder, `.reflink-${process.pid}-b`);
  try {
    await writeFile(source, Buffer.alloc(4_096, 1));
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (['ENOTSUP', 'EOPNOTSUPP', 'ENOTTY', 'EINVAL', 'ENOSYS', 'EXDEV'].includes(code)) return false;
    throw asStorageFull(error, source);
  } finally {
    await rm(source, { force: true });
    await rm(target, { force: true });
  }
}
