import { constants } from 'node:fs';
import { copyFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { asStorageFull } from './errors.ts';

/** A copy of 3 GiB between file systems takes seconds; of a large disk on a slow one, minutes. */
const COPY_DEADLINE_MS = 15 * 60_000;

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
