import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** Where the guest's files lie: beside the sources, also when this runs compiled, from `dist/images`. */
export const assetsDirectory: string =
  [import.meta.dirname, join(import.meta.dirname, '..', '..', 'images')].find((at) =>
    existsSync(join(at, 'common', 'gymbus-helper.py')),
  ) ?? import.meta.dirname;
