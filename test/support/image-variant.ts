import { mkdir, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type Image, imageDirectory } from '../../images/store.ts';

/** Lays an image into another cache, its files linked, with another policy: the template is the same. */
export async function layVariant(
  cacheDir: string,
  { name, digest, directory, manifest }: Image,
  hosts: string[],
): Promise<void> {
  const at = imageDirectory(cacheDir, name, digest);
  await mkdir(at, { recursive: true });
  for (const file of ['disk.raw', 'vmlinuz', 'initrd', 'packages.lock']) {
    await symlink(path.join(directory, file), path.join(at, file));
  }
  await writeFile(path.join(at, 'image.json'), JSON.stringify({ ...manifest, network: { hosts } }));
}
