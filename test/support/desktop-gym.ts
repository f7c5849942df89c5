import { buildImage } from '../../images/build.ts';
import { findRecipe } from '../../images/recipes.ts';
import { openGym, type TestGym } from './gym.ts';
import { cacheDir } from './nats.ts';

/**
 * A gym with one runner that serves the desktop as its recipe is now, not as it was when somebody last built it.
 * @param acting replicas that act at once
 */
export async function openDesktopGym(name: string, acting: number): Promise<TestGym> {
  const { digest } = await buildImage(findRecipe('debian-desktop'), { cacheDir });
  const gym = await openGym();
  try {
    await gym.start(name, {
      GYMBUS_IMAGES: `debian-desktop@${digest}`,
      GYMBUS_ACTING: String(acting),
      GYMBUS_READY: String(acting),
    });
    return gym;
  } catch (error) {
    await gym[Symbol.asyncDispose]();
    throw error;
  }
}
