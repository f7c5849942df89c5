import { Command } from 'commander';
import { recipes } from '../../images/recipes.ts';
import { describeImage, listImages } from '../../images/store.ts';
import { quote } from '../../schemas/index.ts';
import { makeFolder } from '../system/make-folder.ts';
import { configOf } from './client.ts';
import { CliError, EXIT } from './error.ts';
import { gcCommand } from './image-gc.ts';
import { pullCommand } from './image-pull.ts';
import { pushCommand } from './image-push.ts';
import { buildImages } from './images.ts';
import { ensureHostPackages } from './install.ts';
import { Interrupt } from './interrupt.ts';

const buildCommand = new Command('build')
  .description('Build guest images from their recipes; one that is there is left as it is')
  .argument('[name...]', `recipes; by default all: ${recipes.map(({ name }) => name).join(', ')}`)
  .action(async (names: string[]) => {
    const { cacheDir } = configOf(process.env);
    const unknown = names.find((name) => !recipes.some((recipe) => recipe.name === name));
    if (unknown !== undefined) {
      throw new CliError(
        `there is no recipe ${quote(unknown)}; recipes are ${recipes.map(({ name }) => name).join(', ')}`,
        EXIT.usage,
      );
    }
    using interrupt = new Interrupt();
    await makeFolder(cacheDir);
    await ensureHostPackages(interrupt.signal);
    const wanted = names.length > 0 ? names : recipes.map(({ name }) => name);
    for (const image of await buildImages(wanted, cacheDir, interrupt.signal)) console.log(image.directory);
  });

const lsCommand = new Command('ls').description('List the images in the cache').action(async () => {
  const { cacheDir } = configOf(process.env);
  const images = await listImages(cacheDir);
  for (const image of images) console.log(describeImage(image));
  if (images.length === 0) console.error(`no images in ${cacheDir}; make one with: gymbus image build`);
});

export const imageCommand = new Command('image')
  .description('Guest images')
  .addCommand(buildCommand)
  .addCommand(lsCommand)
  .addCommand(pushCommand)
  .addCommand(pullCommand)
  .addCommand(gcCommand);
