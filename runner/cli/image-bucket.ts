import { z } from 'zod';
import { placeImage } from '../../images/place.ts';
import { ImageName } from '../../images/recipe.ts';
import { type Image, referenceTo } from '../../images/store.ts';
import { objectKeys, quote } from '../../schemas/index.ts';
import { pullChunks } from '../storage/chunk-pull.ts';
import { type Pushed, pushChunks } from '../storage/chunk-push.ts';
import { ChunkedFile, type ChunkProgress } from '../storage/chunks.ts';
import { ObjectDamaged, ObjectMissing } from '../storage/errors.ts';
import type { CallOptions, ObjectStore } from '../storage/s3.ts';
import { CliError } from './error.ts';

/**
 * Images in the bucket, for hosts to fetch:
 *
 *   images/<name>/<digest>/index.json       written last: the files, and every chunk with its bytes and sha256
 *   images/<name>/<digest>/chunks/<sha256>  16 MiB of a file, compressed; those of zeros alone are left out
 *
 * An image without an index is unfinished by definition: a push was cut short, and the next one goes on where it was.
 */
const ImageIndex = z.object({
  schema: z.literal('gymbus.image-index.v1'),
  name: ImageName,
  digest: z.string().regex(/^[0-9a-f]{64}$/),
  /** When it was built: the newest of a name is the one that is meant by its name alone. */
  created_at: z.iso.datetime(),
  encoding: z.literal('br'),
  files: z.array(ChunkedFile).min(1),
});
type ImageIndex = z.infer<typeof ImageIndex>;

/** What an image is made of in the cache; the manifest tells the rest. */
const FILES = ['image.json', 'packages.lock', 'vmlinuz', 'initrd', 'disk.raw'];
/** Of a disk of 1 TiB, at 150 bytes a chunk, with room. */
const MOST_INDEX_BYTES = 16 << 20;

const prefixOf = ({ name, digest }: Pick<Image, 'name' | 'digest'>): string => objectKeys.image(name, digest);
const indexKey = (image: Pick<Image, 'name' | 'digest'>): string => `${prefixOf(image)}index.json`;

/** Bytes that a host fetches. */
export const sizeOf = ({ files }: ImageIndex): number =>
  files.flatMap(({ chunks }) => chunks).reduce((sum, { stored_bytes }) => sum + stored_bytes, 0);

/**
 * The whole images of a name, newest first, and what is wrong with each whose index cannot be read.
 * @param digest only those that begin so
 */
async function imagesInBucket(
  store: ObjectStore,
  name: string,
  digest: string,
  options: CallOptions,
): Promise<{ images: ImageIndex[]; unreadable: ObjectDamaged[] }> {
  const images: ImageIndex[] = [];
  const unreadable: ObjectDamaged[] = [];
  for await (const folder of store.folders(objectKeys.images(name), options)) {
    if (!folder.startsWith(digest)) continue;
    try {
      const index = await readIndex(store, { name, digest: folder }, options);
      if (index) images.push(index);
    } catch (error) {
      if (!(error instanceof ObjectDamaged)) throw error;
      unreadable.push(error);
    }
  }
  images.sort((a, b) => b.created_at.localeCompare(a.created_at));
  return { images, unreadable };
}

/**
 * The image that `name` (its newest) or `name@digest` (any unambiguous prefix) names in the bucket; null when there is none.
 * An index that cannot be read keeps nobody from the newest of the others.
 * @param options.warn told of each that is passed over
 * @throws CliError when several begin so; ObjectDamaged when it is meant by its digest, or none of the name can be read
 */
export async function findInBucket(
  store: ObjectStore,
  reference: string,
  options: CallOptions & { warn(message: string): void },
): Promise<ImageIndex | null> {
  const [name = '', digest = ''] = reference.split('@');
  const { images, unreadable } = await imagesInBucket(store, name, digest, options);
  const [newest = null] = images;
  const [first] = unreadable;
  if (first && (digest || !newest)) throw first;
  if (digest && images.length > 1) {
    throw new CliError(`${reference} names ${images.length} images; give more digits of the digest`);
  }
  for (const { message } of unreadable) options.warn(`passed over: ${message}`);
  return newest;
}

async function readIndex(
  store: ObjectStore,
  image: Pick<Image, 'name' | 'digest'>,
  options: CallOptions,
): Promise<ImageIndex | null> {
  const key = indexKey(image);
  try {
    const index = ImageIndex.parse(JSON.parse((await store.get(key, MOST_INDEX_BYTES, options)).toString('utf8')));
    if (index.name === image.name && index.digest === image.digest) return index;
    throw new ObjectDamaged(`it is that of ${index.name}@${index.digest}`);
  } catch (error) {
    if (error instanceof ObjectMissing) return null;
    const why = whyUnreadable(error);
    if (why === null) throw error;
    throw new ObjectDamaged(
      `${store.url(key)} is no index of this version (${why}); push the image again: gymbus image push --again ${referenceTo(image)}`,
      { cause: error },
    );
  }
}

function whyUnreadable(error: unknown): string | null {
  if (error instanceof SyntaxError) return 'it is not JSON';
  if (error instanceof z.ZodError) return z.prettifyError(error).split('\n')[0] ?? '';
  return error instanceof ObjectDamaged ? error.message : null;
}

/**
 * Puts an image into the bucket, its index last. Nothing is sent of one that is there whole, nor any chunk that is there.
 * @param options.again sends everything @returns null when it was there
 */
export async function pushImage(
  store: ObjectStore,
  image: Image,
  options: CallOptions & { again?: boolean; onProgress?: (progress: ChunkProgress) => void },
): Promise<Pushed | null> {
  const { signal } = options;
  if (!options.again && (await readIndex(store, image, { signal }))) return null;
  const pushed = await pushChunks(store, prefixOf(image), image.directory, FILES, options);
  const index: ImageIndex = {
    schema: 'gymbus.image-index.v1',
    ...{ name: image.name, digest: image.digest, created_at: image.manifest.created_at },
    encoding: 'br',
    files: pushed.files,
  };
  await store.put(indexKey(image), Buffer.from(JSON.stringify(index)), 'application/json', { signal });
  return pushed;
}

export interface PullProgress {
  phase: 'waiting' | 'fetching' | 'finishing';
  fraction: number | null;
  message: string;
}

/**
 * Brings an image of the bucket into the cache, unless it is there: once per host, whole or not at all.
 * @throws ObjectDamaged names the chunk, and what to do about it
 */
export async function pullImage(
  store: ObjectStore,
  index: ImageIndex,
  options: { cacheDir: string; signal: AbortSignal; onProgress?: (progress: PullProgress) => void },
): Promise<Image> {
  const { cacheDir, signal, onProgress } = options;
  const { name, digest, files } = index;
  const stored = sizeOf(index);
  const onWait = (): void =>
    onProgress?.({ phase: 'waiting', fraction: null, message: 'another process builds or fetches it' });
  return placeImage({ ...{ name, digest, cacheDir, signal, onWait } }, async (directory) => {
    try {
      await pullChunks(store, prefixOf(index), files, directory, {
        signal,
        onProgress: ({ fraction, sentBytes }) =>
          onProgress?.({
            phase: fraction < 1 ? 'fetching' : 'finishing',
            fraction,
            message: fraction < 1 ? `${mib(sentBytes)} of ${mib(stored)} MiB` : 'making it durable',
          }),
      });
    } catch (error) {
      if (!(error instanceof ObjectDamaged)) throw error;
      throw new ObjectDamaged(
        `${error.message}; nothing is kept of ${referenceTo(index)}. Push it again from a host that has it: gymbus image push --again ${referenceTo(index)}`,
        { cause: error },
      );
    }
  });
}

export const mib = (bytes: number): string => String(Math.ceil(bytes / 2 ** 20));

/** What is told where a bucket has no such image. */
export async function notInBucket(store: ObjectStore, reference: string, options: CallOptions): Promise<string> {
  const [name = ''] = reference.split('@');
  const { images: others } = await imagesInBucket(store, name, '', options);
  const there = others.length > 0 ? `; there are ${others.map(referenceTo).join(', ')}` : '';
  return `there is no image ${quote(reference)} in ${store.url('images/')}${there}`;
}
