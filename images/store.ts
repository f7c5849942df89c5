import type { Dirent } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { ImageManifest } from './manifest.ts';

/** A finished image in the cache. The files are read by many and written by nobody. */
export interface Image {
  readonly name: string;
  /** sha256 over everything that went in, 64 hex digits; the directory is named by the first 16. */
  readonly digest: string;
  readonly directory: string;
  readonly diskPath: string;
  readonly kernelPath: string;
  readonly initrdPath: string;
  readonly manifest: ImageManifest;
}

/** Digits of the digest in a directory's name. */
export const SHORT_DIGEST = 16;

export const imagesDirectory = (cacheDir: string): string => join(cacheDir, 'images');

export const imageDirectory = (cacheDir: string, name: string, digest: string): string =>
  join(imagesDirectory(cacheDir), name, digest.slice(0, SHORT_DIGEST));

/** The cache: `GYMBUS_CACHE`, else the system's for root and the user's for others. */
export function defaultCacheDir(env: NodeJS.ProcessEnv = process.env): string {
  // Absolute: locks are known by it.
  if (env.GYMBUS_CACHE) return resolve(env.GYMBUS_CACHE);
  if (process.getuid?.() === 0) return '/var/cache/gymbus';
  return join(env.XDG_CACHE_HOME ?? join(env.HOME ?? '/', '.cache'), 'gymbus');
}

/**
 * Read one image directory; null when it holds no finished image, or not all of it any more. A manifest that does not
 * parse is an error.
 */
export async function readImage(directory: string): Promise<Image | null> {
  let text: string;
  try {
    text = await readFile(join(directory, 'image.json'), 'utf8');
  } catch (error) {
    if (isAbsent(error)) return null;
    throw error;
  }
  const parsed = ImageManifest.safeParse(parseJson(text, directory));
  if (!parsed.success) {
    throw new ManifestUnreadable(
      `${directory}/image.json is no image manifest of this version; remove the directory and build again`,
      {
        cause: parsed.error,
      },
    );
  }
  const manifest = parsed.data;
  const image: Image = {
    name: manifest.name,
    digest: manifest.digest,
    directory,
    diskPath: join(directory, 'disk.raw'),
    kernelPath: join(directory, 'vmlinuz'),
    initrdPath: join(directory, 'initrd'),
    manifest,
  };
  const [disk, kernel, initrd] = await Promise.all([image.diskPath, image.kernelPath, image.initrdPath].map(sizeOf));
  return disk === manifest.disk_bytes && kernel && initrd ? image : null;
}

async function sizeOf(path: string): Promise<number> {
  try {
    return (await stat(path)).size;
  } catch (error) {
    if (isAbsent(error)) return 0;
    throw error;
  }
}

/** Every finished image that this version can read, newest first; what another version built is passed over. */
export async function listImages(cacheDir: string): Promise<Image[]> {
  const found: Image[] = [];
  for (const name of await visibleDirectories(imagesDirectory(cacheDir))) {
    for (const digest of await visibleDirectories(join(imagesDirectory(cacheDir), name))) {
      const image = await readImage(join(imagesDirectory(cacheDir), name, digest)).catch(ifOfAnotherVersion);
      if (image) found.push(image);
    }
  }
  return found.sort((a, b) => b.manifest.created_at.localeCompare(a.manifest.created_at));
}

/** The image `name` (its newest build) or `name@digest` (any unambiguous prefix of the digest); null when absent. */
export async function findImage(reference: string, cacheDir: string): Promise<Image | null> {
  const [name, digest = ''] = reference.split('@');
  const all = await listImages(cacheDir);
  const matching = all.filter((image) => image.name === name && image.digest.startsWith(digest));
  if (digest && new Set(matching.map((image) => image.digest)).size > 1) {
    throw new Error(`${reference} names ${matching.length} images; give more digits of the digest`);
  }
  return matching[0] ?? null;
}

/** `name@digest`, as an image is pinned. */
export const referenceTo = ({ name, digest }: Pick<Image, 'name' | 'digest'>): string =>
  `${name}@${digest.slice(0, SHORT_DIGEST)}`;

/** One line about an image, for a listing. */
export function describeImage(image: Image): string {
  const { manifest } = image;
  const size = `${manifest.resolution.width}x${manifest.resolution.height}`;
  const disk = `${Math.round(manifest.disk_allocated_bytes / 2 ** 20)} MiB`;
  return `${referenceTo(image)}  ${size}  ${manifest.memory_mib} MiB RAM  ${disk} disk  ${manifest.created_at}`;
}

async function visibleDirectories(parent: string): Promise<string[]> {
  let entries: Dirent[];
  try {
    entries = await readdir(parent, { withFileTypes: true });
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
  return entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map((entry) => entry.name);
}

/** An image is there, and its manifest is not of this version. */
class ManifestUnreadable extends Error {
  override readonly name = 'ManifestUnreadable';
}

function ifOfAnotherVersion(error: unknown): null {
  if (error instanceof ManifestUnreadable) return null;
  throw error;
}

const isAbsent = (error: unknown): boolean => {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'ENOENT' || code === 'ENOTDIR';
};

function parseJson(text: string, directory: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`${directory}/image.json is not JSON; remove the directory and build again`, { cause });
  }
}
