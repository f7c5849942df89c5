import { readdir, readFile, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { toolPath } from './command.ts';

/** Names of unfinished work begin so; nothing that looks for images sees them. */
export const UNFINISHED = '.build-';

/** Remove what interrupted builds left in `directory`. Only for the holder of its lock. */
export async function removeLeftovers(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.startsWith(UNFINISHED)) await removeTree(join(directory, name));
  }
}

/** Remove a tree that programs may have mounted things in. */
export async function removeTree(path: string): Promise<void> {
  // The kernel lists mounts by their real paths, with blanks and the like in octal.
  const real = await realpath(path).catch(() => path);
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8'))
    .split('\n')
    .map((line) =>
      (line.split(' ')[4] ?? '').replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))),
    )
    .filter((mount) => mount.startsWith(`${real}/`));
  // Deepest first. Removing through a mount would remove what is mounted.
  for (const mount of mounts.sort((a, b) => b.length - a.length)) {
    await execa('umount', ['--lazy', mount], { env: { PATH: toolPath }, timeout: 10_000 });
  }
  await rm(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}
