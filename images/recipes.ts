import { join } from 'node:path';
import { assetsDirectory } from './assets.ts';
import type { CommonFiles } from './builder/root.ts';
import { debianDesktop } from './debian-desktop/recipe.ts';
import { office } from './office/recipe.ts';
import type { Recipe } from './recipe.ts';

/** The recipes that come with gymbus. */
export const recipes: readonly Recipe[] = [debianDesktop, office];

/** The recipe called `name`, or an error that names those there are. */
export function findRecipe(name: string): Recipe {
  const found = recipes.find((recipe) => recipe.name === name);
  if (found) return found;
  throw new Error(`no recipe for the image ${name}; there are: ${recipes.map((recipe) => recipe.name).join(', ')}`);
}

/** What goes into every image beside its recipe. */
export function commonFiles(): CommonFiles {
  const common = join(assetsDirectory, 'common');
  return {
    tree: join(common, 'files'),
    helper: join(common, 'gymbus-helper.py'),
    network: join(common, 'gymbus-network.py'),
    initrdInit: join(common, 'initrd-init'),
  };
}
