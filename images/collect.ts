import { lstat, readdir, rename } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { lockFile } from '../runner/system/lock.ts';
import { BASE } from './build.ts';
import { removeTree, UNFINISHED } from './builder/leftovers.ts';
import { baseDigest } from './digest.ts';
import { imageLock } from './place.ts';
import { recipes } from './recipes.ts';
import { type Image, imagesDirectory, listImages, referenceTo, SHORT_DIGEST } from './store.ts';

/** What needs images: everything else may go. */
export interface Needs {
  /** As a runner is configured: NAME or NAME@DIGEST. */
  readonly references: readonly string[];
  /** Of the images that templates were made of, whole digests. */
  readonly templates: ReadonlySet<string>;
}

/** Something of the cache that nobody needs. */
export interface Stale {
  /** Of the image that it is or belongs to. */
  readonly name: string;
  readonly what: string;
  readonly directory: string;
  /** That its removal gives back. */
  readonly bytes: number;
}

/**
 * Whether an image stays: the newest of its name, one that a runner is told to serve, one that a template was made of.
 * @param images all there are, newest first
 */
function isNeeded(image: Image, images: readonly Image[], { references, templates }: Needs): boolean {
  const namesakes = images.filter(({ name }) => name === image.name);
  if (namesakes[0] === image || templates.has(image.digest)) return true;
  return references.some((reference) => {
    const [name, digest] = reference.split('@');
    return digest !== undefined && name === image.name && image.digest.startsWith(digest);
  });
}

/**
 * What nobody needs: images, package trees that no recipe would use again, and what builds and fetches that were killed
 * have left. Images of another version of gymbus are not seen, and stay.
 */
export async function findStale(cacheDir: string, needs: Needs): Promise<Stale[]> {
  const images = await listImages(cacheDir);
  const stale: Stale[] = [];
  for (const image of images) {
    if (isNeeded(image, images, needs)) continue;
    stale.push(await staleAt(image.name, referenceTo(image), image.directory));
  }
  const wantedBases = new Set(
    recipes.map((recipe) => join(recipe.name, `${BASE}${baseDigest(recipe).slice(0, SHORT_DIGEST)}`)),
  );
  for (const name of await namesIn(imagesDirectory(cacheDir))) {
    const parent = join(imagesDirectory(cacheDir), name);
    for (const entry of await namesIn(parent)) {
      const base = entry.startsWith(BASE) && !wantedBases.has(join(name, entry));
      if (base)
        stale.push(await staleAt(name, `packages of ${name} (${entry.slice(BASE.length)})`, join(parent, entry)));
      if (entry.startsWith(UNFINISHED)) stale.push(await staleAt(name, `unfinished ${name}`, join(parent, entry)));
    }
  }
  return stale;
}

/** Removes it; what vanishes does so at once under its name. @throws LockHeld when a process works on an image of that name */
export async function removeStale(cacheDir: string, { name, directory }: Stale): Promise<void> {
  await using _lock = await lockFile(imageLock(cacheDir, name), { waitMs: 0 });
  const hidden = join(dirname(directory), `${UNFINISHED}removed-${basename(directory)}`);
  if (basename(directory).startsWith(UNFINISHED)) return removeTree(directory);
  await rename(directory, hidden);
  await removeTree(hidden);
}

async function staleAt(name: string, what: string, directory: string): Promise<Stale> {
  return { name, what, directory, bytes: await allocated(directory) };
}

/** Bytes of a tree's blocks. What vanishes meanwhile takes none. */
async function allocated(directory: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(directory, { withFileTypes: true }).catch(() => [])) {
    const at = join(directory, entry.name);
    if (entry.isDirectory()) bytes += await allocated(at);
    else bytes += ((await lstat(at).catch(() => null))?.blocks ?? 0) * 512;
  }
  return bytes;
}

async function namesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
}
