import { constants } from 'node:fs';
import { access, chmod, lstat, mkdir, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { Engine } from './engine.ts';

const TMPFS_MAGIC = 0x01021994;

/**
 * Where run folders go: sockets, which need short paths, and pictures on their way, which need memory and not a disk.
 * `/run/gymbus` where `/run` is a memory file system, as on most hosts; else `/dev/shm/gymbus`. One that another user made is not for us:
 * whoever is not root has one named by the user's number.
 */
export async function openRunRoot(parents: readonly string[] = ['/run', '/dev/shm']): Promise<string> {
  for (const parent of parents) {
    const { type } = await statfs(parent).catch(() => ({ type: 0 }));
    const uid = process.getuid?.() ?? 0;
    const folder = path.join(parent, uid === 0 ? 'gymbus' : `gymbus-${uid}`);
    if (type !== TMPFS_MAGIC) continue;
    const ours = await openFolder(folder).then(
      () => true,
      () => false,
    );
    if (ours) return folder;
  }
  throw new Error(
    `none of ${parents.join(', ')} is a memory file system with a gymbus folder this user may write to: mount a tmpfs on /run`,
  );
}

/** Machines of another user pass through it to their own folder in it, and list nothing. @throws when it is not this user's */
async function openFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o711 });
  await access(folder, constants.W_OK);
  const { uid, mode } = await lstat(folder);
  if (uid !== process.getuid?.()) throw new Error(`${folder} belongs to user ${uid}`);
  // Whatever the umask took.
  if ((mode & 0o777) !== 0o711) await chmod(folder, 0o711);
}

/** The run folder of the machine with that uuid, whole: no two machines may ever share one. */
export function runFolderOf({ runRoot }: Pick<Engine, 'runRoot'>, uuid: string): string {
  return path.join(runRoot, uuid);
}

/** Where the machine with that uuid gives its device state away. It belongs to the runner. */
export function saveFolderOf(engine: Pick<Engine, 'runRoot'>, uuid: string): string {
  return `${runFolderOf(engine, uuid)}.save`;
}
