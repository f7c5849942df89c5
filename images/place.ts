import { mkdir, open, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../runner/system/lock.ts';
import { makeFolder } from '../runner/system/make-folder.ts';
import { removeLeftovers, removeTree, UNFINISHED } from './builder/leftovers.ts';
import { type Image, imageDirectory, imagesDirectory, readImage, SHORT_DIGEST } from './store.ts';

export interface Placement {
  readonly name: string;
  /** 64 hex digits. */
  readonly digest: string;
  readonly cacheDir: string;
  readonly signal?: AbortSignal | undefined;
  /** Called once when another process works on an image of this name and is waited for. */
  readonly onWait?: () => void;
}

/** Held by whoever makes, fetches or removes images of a name: one process at a time. */
export const imageLock = (cacheDir: string, name: string): string => join(cacheDir, 'locks', `image-${name}`);

/**
 * Puts an image into the cache, unless it is there. `fill` works in a hidden directory, which appears under the image's
 * name by one rename, complete and on the disk; whatever goes wrong, nothing is left of it. Of two processes that want
 * one image, one waits for the other and finds its result; what one that was killed had left, the next removes.
 * @param fill writes the image's files, `image.json` among them
 */
export async function placeImage(
  placement: Placement,
  fill: (directory: string, signal: AbortSignal) => Promise<void>,
): Promise<Image> {
  const { name, digest, cacheDir } = placement;
  const directory = imageDirectory(cacheDir, name, digest);
  const found = await readImage(directory);
  if (found) return found;
  const parent = join(imagesDirectory(cacheDir), name);
  await makeFolder(parent);
  await using _lock = await lockFile(imageLock(cacheDir, name), {
    signal: placement.signal,
    ...(placement.onWait ? { onWait: placement.onWait } : {}),
  });
  const meanwhile = await readImage(directory);
  if (meanwhile) return meanwhile;

  await removeLeftovers(parent);
  const work = join(parent, `${UNFINISHED}${digest.slice(0, SHORT_DIGEST)}`);
  const signal = placement.signal ?? new AbortController().signal;
  try {
    await mkdir(work);
    await fill(work, signal);
    signal.throwIfAborted();
    const made = await readImage(work);
    if (made?.name !== name || made.digest !== digest)
      throw new Error(`${work} does not hold the image ${name}@${digest}`);
    for (const file of await readdir(work)) await syncPath(join(work, file));
    await syncPath(work);
    // A directory without a manifest in this place is no image: somebody removed parts of one.
    await removeTree(directory);
    await rename(work, directory);
    await syncPath(parent);
  } finally {
    await removeTree(work);
  }
  const image = await readImage(directory);
  if (!image) throw new Error(`${directory} vanished right after it was made`);
  return image;
}

export async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
