import { chmod, chown, copyFile, mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { DESCRIPTOR, type Start } from './arguments.ts';
import type { OpenedFile } from './launcher.ts';
import type { MachineUser } from './rights.ts';
import { removeRunFolder } from './run-folder.ts';

/** Where a machine's files are, for the runner. QEMU itself gets open ones: its user need not reach any of these folders. */
export interface MachinePlaces {
  /** Of a clone, it must be there; of a boot, it is made. */
  memoryPath: string;
  diskPath: string;
  runFolder: string;
  start: Start;
  /** Device state a clone starts from; null for a boot. */
  statePath: string | null;
}

export interface MachineFiles {
  /** To be opened for it. */
  readonly files: readonly OpenedFile[];
  /** As QEMU finds it. */
  readonly start: Start;
}

/**
 * Makes the run folder, and of a boot the memory. QEMU opens the memory file anew through the inherited descriptor, for reading and
 * writing whatever it is for: so that file alone belongs to the group of QEMU's user.
 * @throws the file system's errors, EEXIST for a run folder that another machine has; this one's is then gone again
 */
export async function makeMachineFiles(places: MachinePlaces, user: MachineUser | null): Promise<MachineFiles> {
  const { memoryPath, diskPath, runFolder, start, statePath } = places;
  await mkdir(path.dirname(runFolder), { recursive: true, mode: 0o711 });
  await mkdir(runFolder);
  try {
    // Until QEMU has its channels nobody else writes here: what is made by name could be taken for something else. It only passes through.
    await chmod(runFolder, 0o711);
    if (start.kind === 'boot') await makeMemoryFile(memoryPath, user);
    const found = start.kind === 'boot' && user ? await copyForUser(start, runFolder) : start;
    const base = start.kind === 'clone' ? start.overlayOf : null;
    const file = (fd: number, name: string | null, access: OpenedFile['access'] = 'r'): OpenedFile[] =>
      name === null ? [] : [{ fd, path: name, access }];
    return {
      files: [
        ...file(DESCRIPTOR.state, statePath),
        ...file(DESCRIPTOR.memory, memoryPath),
        ...file(DESCRIPTOR.disk, diskPath, 'r+'),
        ...file(DESCRIPTOR.diskToRead, diskPath),
        ...file(DESCRIPTOR.base, base),
      ],
      start: found,
    };
  } catch (error) {
    await removeRunFolder(runFolder);
    throw error;
  }
}

/** Lets QEMU write its pictures there, once its runner makes nothing there any more. */
export async function giveRunFolder(runFolder: string, user: MachineUser | null): Promise<void> {
  await chmod(runFolder, 0o700);
  if (user) await chown(runFolder, user.uid, user.gid);
}

async function makeMemoryFile(file: string, user: MachineUser | null): Promise<void> {
  const handle = await open(file, 'a');
  try {
    await handle.chmod(user ? 0o660 : 0o600);
    if (user) await handle.chown(process.getuid?.() ?? 0, user.gid);
  } finally {
    await handle.close();
  }
}

/** The image's own may be for the runner alone, and QEMU opens these by name. */
async function copyForUser(start: Start & { kind: 'boot' }, folder: string): Promise<Start> {
  const copy = async (file: string, name: string): Promise<string> => {
    const target = path.join(folder, name);
    await copyFile(file, target);
    await chmod(target, 0o444);
    return target;
  };
  const kernelPath = await copy(start.kernelPath, 'kernel');
  return { ...start, kernelPath, initrdPath: await copy(start.initrdPath, 'initrd') };
}
