import { createHash, randomBytes } from 'node:crypto';
import { mkdir, open, readdir, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { debianDesktop } from '../../images/debian-desktop/recipe.ts';
import type { ImageManifest } from '../../images/manifest.ts';
import { type Image, imageDirectory, readImage } from '../../images/store.ts';

export interface MadeUp {
  name: string;
  digest: string;
  createdAt?: string;
  diskBytes?: number;
  /** Where the disk has a MiB of bytes by chance; the rest is holes. */
  dataAt?: readonly number[];
}

const MIB = 2 ** 20;

/** An image that no guest boots, laid into a cache as a build would leave it: a sparse disk, and something small for the rest. */
export async function makeUpImage(cacheDir: string, madeUp: MadeUp): Promise<Image> {
  const { name, digest, createdAt = '2026-01-01T00:00:00.000Z', diskBytes = 4 * MIB, dataAt = [0] } = madeUp;
  const at = imageDirectory(cacheDir, name, digest);
  await mkdir(at, { recursive: true });
  for (const file of ['vmlinuz', 'initrd', 'packages.lock'])
    await writeFile(path.join(at, file), `${file} of ${digest}`);
  const disk = await open(path.join(at, 'disk.raw'), 'w');
  await disk.truncate(diskBytes);
  for (const offset of dataAt) await disk.write(randomBytes(MIB), 0, MIB, offset);
  await disk.close();
  const { description, suite, resolution, video_memory_mib, memory_mib, vcpus } = debianDesktop;
  const { readiness, warmup, volatile_regions } = debianDesktop;
  const manifest: ImageManifest = {
    ...{ schema: 'gymbus.image.v1', name, digest, description, suite, created_at: createdAt, resolution },
    ...{ video_memory_mib, memory_mib, vcpus, cmdline: '', user: 'user', readiness, warmup, volatile_regions },
    ...{ network: { hosts: [] } },
    ...{ versions: {}, disk_bytes: diskBytes, disk_allocated_bytes: dataAt.length * MIB, build_s: 1 },
  };
  await writeFile(path.join(at, 'image.json'), JSON.stringify(manifest));
  const image = await readImage(at);
  if (!image) throw new Error(`${at} is no image`);
  return image;
}

/** Each file of a directory with its hash and length, to compare two images. */
export async function hashesOf(directory: string): Promise<Record<string, string>> {
  const hashes: Record<string, string> = {};
  for (const name of (await readdir(directory)).sort()) {
    const file = await open(path.join(directory, name));
    const hash = createHash('sha256');
    for await (const part of file.createReadStream({ highWaterMark: MIB })) hash.update(part);
    hashes[name] = hash.digest('hex');
  }
  return hashes;
}

/** Bytes that a file takes on its disk. */
export const blocksOf = async (file: string): Promise<number> => (await stat(file)).blocks * 512;
