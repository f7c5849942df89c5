import { constants } from 'node:fs';
import { open, readdir, rmdir, unlink } from 'node:fs/promises';

/**
 * Removes a folder that QEMU's user could write to, and the files in it. It is taken from that user first, and nothing is gone into by
 * name: another process of that user could put a link to a folder of the host's in the way. QEMU makes no folders: one in it stays.
 * Idempotent. @throws when a folder is in it, or it is none itself; what else was in it is gone then
 */
export async function removeRunFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW).catch(ifGone);
  if (handle === null) return;
  const odd: string[] = [];
  try {
    await handle.chown(process.geteuid?.() ?? 0, process.getegid?.() ?? 0);
    await handle.chmod(0o700);
    const held = `/proc/self/fd/${handle.fd}`;
    for (const entry of await readdir(held, { withFileTypes: true })) {
      if (entry.isDirectory()) odd.push(entry.name);
      else await unlink(`${held}/${entry.name}`).catch(ifGone);
    }
  } finally {
    await handle.close();
  }
  if (odd.length > 0) {
    throw new Error(
      `${folder} has folders in it (${odd.join(', ')}), which QEMU does not make: look at them and remove it by hand`,
    );
  }
  await rmdir(folder).catch(ifGone);
}

function ifGone(error: NodeJS.ErrnoException): null {
  if (error.code === 'ENOENT') return null;
  throw error;
}
