import { buildImage } from '../../images/build.ts';
import { findRecipe, recipes } from '../../images/recipes.ts';
import { findImage, type Image, listImages, SHORT_DIGEST } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { CliError, EXIT } from './error.ts';
import { progressView } from './progress.ts';

/**
 * The images a runner is configured to serve, as they lie in the cache.
 * @throws CliError that names a missing one and the command that makes it
 */
export async function imagesFor(config: Config): Promise<Image[]> {
  return Promise.all(config.images.map((reference) => imageFor(reference, config.cacheDir)));
}

async function imageFor(reference: string, cacheDir: string): Promise<Image> {
  const image = await findImage(reference, cacheDir).catch(explained);
  if (image) return image;
  throw new CliError(
    hasRecipe(reference)
      ? `image ${reference} is not in ${cacheDir}; make it with: gymbus image build ${reference}`
      : `GYMBUS_IMAGES names ${reference}, which is not in ${cacheDir}; ${await othersThan(reference, cacheDir)}`,
  );
}

/** What there is in its place. */
async function othersThan(reference: string, cacheDir: string): Promise<string> {
  const [name] = reference.split('@');
  const builds = (await listImages(cacheDir)).filter((image) => image.name === name);
  if (builds.length > 0)
    return `there are ${builds.map((image) => `${name}@${image.digest.slice(0, SHORT_DIGEST)}`).join(', ')}`;
  if (hasRecipe(name ?? ''))
    return `there is no build of ${name}: copy it, or name it without @ and make it with gymbus image build`;
  return `it has no recipe either; recipes are ${recipes.map((recipe) => recipe.name).join(', ')}`;
}

const hasRecipe = (reference: string): boolean => recipes.some(({ name }) => name === reference);

/** Those of a runner's images that no recipe makes have to be there. @throws CliError */
export async function refuseMissingImages(config: Config): Promise<void> {
  const others = config.images.filter((reference) => !hasRecipe(reference));
  await Promise.all(others.map((reference) => imageFor(reference, config.cacheDir)));
}

/** The images a runner is configured to serve: those named by a recipe as that is now, built where they are missing. */
export async function ensureImages(config: Config, signal: AbortSignal): Promise<Image[]> {
  const images: Image[] = [];
  for (const reference of config.images) {
    if (hasRecipe(reference)) images.push(...(await buildImages([reference], config.cacheDir, signal)));
    else images.push(await imageFor(reference, config.cacheDir));
  }
  return images;
}

/** What the builder and the cache say is wrong with this machine or its files is for a person, without a stack. */
function explained(error: Error): never {
  // What the file system refuses is explained elsewhere.
  throw error.constructor === Error && !('code' in error)
    ? new CliError(error.message, EXIT.no, { cause: error })
    : error;
}

/** Builds what is not there as its recipe says, with the progress shown. */
export async function buildImages(names: readonly string[], cacheDir: string, signal: AbortSignal): Promise<Image[]> {
  const images: Image[] = [];
  for (const name of names) {
    const view = progressView(`image ${name}`);
    try {
      images.push(
        await buildImage(findRecipe(name), { cacheDir, signal, onProgress: (progress) => view.report(progress) }).catch(
          explained,
        ),
      );
      view.done();
    } finally {
      view.stop();
    }
  }
  return images;
}
