import { stat } from 'node:fs/promises';
import path from 'node:path';
import { Command } from 'commander';
import { findStale, removeStale, type Stale } from '../../images/collect.ts';
import type { Config } from '../host/config.ts';
import { templateImages } from '../replica/template-images.ts';
import { openArea } from '../storage/area.ts';
import { LockHeld } from '../system/lock.ts';
import { configOf } from './client.ts';
import { CliError } from './error.ts';
import { mib } from './image-bucket.ts';

export const gcCommand = new Command('gc')
  .description('Show which images of the cache nobody needs, with the room they take; remove them with --delete')
  .option('--delete', 'remove them')
  .addHelpText(
    'after',
    '\nKept: the newest of each name, those that GYMBUS_IMAGES names, those that templates in GYMBUS_DATA were made of. Runners with other settings on this host: run it with theirs.',
  )
  .action(async (options: { delete?: boolean }) => {
    const config = configOf(process.env);
    const templates = await imagesOfTemplates(config);
    const stale = await findStale(config.cacheDir, { references: config.images, templates });
    const removed: Stale[] = [];
    for (const item of stale) {
      console.log(`${item.what}  ${mib(item.bytes)} MiB`);
      if (options.delete && (await remove(item, config.cacheDir))) removed.push(item);
    }
    const total = (items: readonly Stale[]): string => `${mib(items.reduce((sum, { bytes }) => sum + bytes, 0))} MiB`;
    if (options.delete) console.error(`${removed.length} removed: ${total(removed)}`);
    else if (stale.length === 0) console.error(`nothing in ${config.cacheDir}/images is to be removed`);
    else console.error(`${stale.length} to be removed: ${total(stale)}; gymbus image gc --delete does it`);
  });

async function remove(item: Stale, cacheDir: string): Promise<boolean> {
  try {
    await removeStale(cacheDir, item);
    return true;
  } catch (error) {
    if (!(error instanceof LockHeld)) throw error;
    console.error(`${item.what} is left: an image ${item.name} is being built or fetched`);
    return false;
  }
}

/** @throws CliError when it cannot be known what the templates were made of */
async function imagesOfTemplates(config: Config): Promise<ReadonlySet<string>> {
  const { dataDir, diskFloorBytes } = config;
  // Where there never was an area there is no template; opening would make one.
  const exists = await stat(path.join(dataDir, 'area')).catch(() => null);
  if (!exists) return new Set();
  await using area = await openArea({ dataDir, floorBytes: diskFloorBytes });
  const { digests, making, unreadable } = await templateImages(area.path);
  if (making) throw new CliError('a runner makes a template just now: try again when it is done');
  if (unreadable.length > 0) {
    throw new CliError(
      `${unreadable.join(', ')}: which image this template was made of cannot be read; remove it where no runner is at work, or start one, which makes it anew`,
    );
  }
  return digests;
}
