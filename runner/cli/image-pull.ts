import { Command } from 'commander';
import { type Image, referenceTo } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import type { Logger } from '../host/log.ts';
import { StorageAway, StorageRefused } from '../storage/errors.ts';
import type { ObjectStore } from '../storage/s3.ts';
import { namesBucket, openClientStore, storeConfig } from './client.ts';
import { CliError } from './error.ts';
import { findInBucket, notInBucket, pullImage, sizeOf } from './image-bucket.ts';
import type { Elsewhere } from './images.ts';
import { Interrupt } from './interrupt.ts';
import { progressView } from './progress.ts';

export const pullCommand = new Command('pull')
  .description('Fetch images from the bucket into the cache; one that is there is left as it is')
  .argument('<name...>', 'images, NAME for the newest in the bucket or NAME@DIGEST')
  .action(async (references: string[]) => {
    using interrupt = new Interrupt();
    const { signal } = interrupt;
    const config = await storeConfig();
    using store = openClientStore(config);
    for (const reference of references) {
      const image = await pullReference(store, reference, config.cacheDir, signal);
      if (!image) throw new CliError(await notInBucket(store, reference, { signal }));
      console.log(image.directory);
    }
  });

/** Fetches what a reference names in the bucket, with the progress shown; null when the bucket has no such image. */
async function pullReference(
  store: ObjectStore,
  reference: string,
  cacheDir: string,
  signal: AbortSignal,
): Promise<Image | null> {
  const warn = (message: string): void => console.error(`warning: ${message}`);
  const index = await findInBucket(store, reference, { signal, warn });
  if (!index) return null;
  const view = progressView(`pull ${referenceTo(index)}`);
  try {
    const image = await pullImage(store, index, { cacheDir, signal, onProgress: (progress) => view.report(progress) });
    view.done();
    return image;
  } finally {
    view.stop();
  }
}

/** The bucket as a runner fetches from it what its cache lacks, told in its log; undefined where none is named. */
export function bucketOf(config: Config, log: Logger, signal: AbortSignal): Elsewhere | undefined {
  if (!namesBucket(config)) return undefined;
  const place = `s3://${config.s3.bucket}/images/`;
  return async (reference) => {
    using store = openClientStore(config);
    try {
      const warn = (message: string): void => log.warn({ image: reference }, message);
      const index = await findInBucket(store, reference, { signal, warn });
      if (!index)
        return `it is not in ${place} either: gymbus image push ${reference}, on a host that has it, puts it there`;
      log.info({ image: referenceTo(index), from: place, bytes: sizeOf(index) }, 'image is not in the cache: fetching');
      const started = performance.now();
      const image = await pullImage(store, index, { cacheDir: config.cacheDir, signal });
      log.info({ image: referenceTo(image), ms: Math.round(performance.now() - started) }, 'image fetched');
      return image;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof StorageAway || error instanceof StorageRefused)) throw error;
      return `whether it is in ${place} cannot be learnt: ${error.message}`;
    }
  };
}
