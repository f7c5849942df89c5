import { buildImage } from '../../images/build.ts';
import { findRecipe, recipes } from '../../images/recipes.ts';
import { findImage, type Image } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { CliError } from './error.ts';
import { progressView } from './progress.ts';

/**
 * The images a runner is configured to serve, as they lie in the cache.
 * @throws CliError that names a missing one and the command that makes it
 */
export async function imagesFor(config: Config): Promise<Image[]> {
  return Promise.all(
    config.images.map(async (reference) => {
      const image = await findImage(reference, config.cacheDir);
      if (image) return image;
      const known = recipes.some(({ name }) => name === reference);
      throw new CliError(
        known
          ? `image ${reference} is not in ${config.cacheDir}; make it with: gymbus image build ${reference}`
          : `GYMBUS_IMAGES names ${reference}, which is not in ${config.cacheDir} and has no recipe; recipes are ${recipes.map(({ name }) => name).join(', ')}`,
      );
    }),
  );
}

/** Builds what is not there as its recipe says, with the progress shown. */
export async function buildImages(names: readonly string[], cacheDir: string, signal: AbortSignal): Promise<Image[]> {
  const images: Image[] = [];
  for (const name of names) {
    const view = progressView(`image ${name}`);
    try {
      images.push(
        await buildImage(findRecipe(name), { cacheDir, signal, onProgress: (progress) => view.report(progress) }),
      );
      view.done();
    } finally {
      view.stop();
    }
  }
  return images;
}
