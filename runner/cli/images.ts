import { buildImage } from '../../images/build.ts';
import { findRecipe, recipes } from '../../images/recipes.ts';
import { findImage, type Image, listImages, referenceTo } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { CliError, EXIT } from './error.ts';
import { progressView } from './progress.ts';

/** Looks for an image elsewhere than in the cache: the image, put into the cache, or why there is none, for a message. */
export type Elsewhere = (reference: string) => Promise<Image | string>;

const notLookedFor: Elsewhere = async (reference) =>
  `gymbus image pull ${reference} fetches it from a bucket that has it`;

/**
 * The images a runner is configured to serve: as they lie in the cache, else from elsewhere.
 * @throws CliError that names a missing one and the command that makes it
 */
export async function imagesFor(config: Config, elsewhere: Elsewhere = notLookedFor): Promise<Image[]> {
  const images: Image[] = [];
  for (const reference of config.images) images.push(await imageFor(reference, config.cacheDir, elsewhere));
  return images;
}

async function imageFor(reference: string, cacheDir: string, elsewhere: Elsewhere): Promise<Image> {
  const found =
    (await findImage(reference, cacheDir).catch(explained)) ?? (await elsewhere(reference).catch(explained));
  if (typeof found !== 'string') return found;
  throw new CliError(
    hasRecipe(reference)
      ? `image ${reference} is not in ${cacheDir}; make it with: gymbus image build ${reference}; ${found}`
      : `GYMBUS_IMAGES names ${reference}, which is not in ${cacheDir}; ${await othersThan(reference, cacheDir)}; ${found}`,
  );
}

/** What there is in its place. */
async function othersThan(reference: string, cacheDir: string): Promise<string> {
  const [name] = reference.split('@');
  const builds = (await listImages(cacheDir)).filter((image) => image.name === name);
  if (builds.length > 0) return `there are ${builds.map(referenceTo).join(', ')}`;
  if (hasRecipe(name ?? ''))
    return `there is no build of ${name}: name it without @ and make it with gymbus image build`;
  return `it has no recipe either; recipes are ${recipes.map((recipe) => recipe.name).join(', ')}`;
}

const hasRecipe = (reference: string): boolean => recipes.some(({ name }) => name === reference);

/** Those of a runner's images that no recipe makes have to be there. @throws CliError */
export async function refuseMissingImages(config: Config): Promise<void> {
  const others = config.images.filter((reference) => !hasRecipe(reference));
  await Promise.all(others.map((reference) => imageFor(reference, config.cacheDir, notLookedFor)));
}

/** The images a runner is configured to serve: those named by a recipe as that is now, built where they are missing. */
export async function ensureImages(config: Config, signal: AbortSignal): Promise<Image[]> {
  const images: Image[] = [];
  for (const reference of config.images) {
    if (hasRecipe(reference)) images.push(...(await buildImages([reference], config.cacheDir, signal)));
    else images.push(await imageFor(reference, config.cacheDir, notLookedFor));
  }
  return images;
}

/** What the builder and the cache say is wrong with this machine or its files is for a person, without a stack. */
export function explained(error: Error): never {
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
