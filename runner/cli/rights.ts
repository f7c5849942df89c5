import { mkdir } from 'node:fs/promises';
import { findImage } from '../../images/store.ts';
import type { Config } from '../host/config.ts';
import { canReflink } from '../storage/clone.ts';
import { CliError } from './error.ts';

/**
 * A local gym makes files of other users and mounts a file system. Who may not is told at once, not after minutes of building.
 * @throws CliError
 */
export async function refuseWithoutRights(config: Config): Promise<void> {
  if (process.getuid?.() === 0) return;
  const images = await Promise.all(config.images.map((reference) => findImage(reference, config.cacheDir)));
  await mkdir(config.dataDir, { recursive: true });
  const reason = images.includes(null)
    ? `to build the guest image, which is not in ${config.cacheDir} yet`
    : !(await canReflink(config.dataDir)) &&
      `to mount a file system for clones, for ${config.dataDir} cannot share blocks`;
  if (reason) throw new CliError(`root is needed ${reason}; run it as root: sudo env "PATH=$PATH" npx gymbus up`);
}
