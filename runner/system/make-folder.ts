import { mkdir, stat } from 'node:fs/promises';
import path from 'node:path';

/**
 * Makes a folder and those above it that are missing, level by level: below /proc Node's own recursive way never ends.
 * @throws the file system's own error, with the folder that could not be made: EEXIST or ENOTDIR where a file is in its place
 */
export async function makeFolder(directory: string): Promise<void> {
  const found = await stat(directory).catch(() => null);
  if (found?.isDirectory()) return;
  const above = path.dirname(directory);
  if (!found && above !== directory) await makeFolder(above);
  try {
    await mkdir(directory);
  } catch (error) {
    // Another process may have been first.
    const now = await stat(directory).catch(() => null);
    if (!now?.isDirectory()) throw error;
  }
}
