import { findImage } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { canReflink } from '../storage/clone.ts';
import { isRoot, isRootWithoutMount, MOUNT_REMEDY } from '../system/capabilities.ts';
import { CliError } from './error.ts';

/** Whether this is somebody who makes files of other users and mounts. */
const mayAll = (): boolean => isRoot() && !isRootWithoutMount();

/**
 * A local gym makes files of other users and mounts a file system. Who may not is told at once, not after minutes of building.
 * @throws CliError
 */
export async function refuseWithoutRights(config: Config): Promise<void> {
  if (mayAll()) return;
  await refuseToBuild(config.images, config.cacheDir);
  if (await canReflink(config.dataDir)) return;
  throw new CliError(rightsNeeded(`to mount a file system for clones, for ${config.dataDir} cannot share blocks`));
}

/** @throws CliError when one of these images would have to be built by somebody who may not */
export async function refuseToBuild(references: readonly string[], cacheDir: string): Promise<void> {
  if (mayAll()) return;
  const images = await Promise.all(references.map((reference) => findImage(reference, cacheDir)));
  if (images.includes(null))
    throw new CliError(rightsNeeded(`to build the guest image, which is not in ${cacheDir} yet`));
}

function rightsNeeded(why: string): string {
  if (!isRoot()) return `root is needed ${why}; run this as root (sudo -s, with node and go on its PATH)`;
  return `the right to mount is needed ${why}; ${MOUNT_REMEDY}`;
}
