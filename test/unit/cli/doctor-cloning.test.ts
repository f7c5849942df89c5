import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { examineCloning } from '../../../runner/cli/doctor-cloning.ts';

/** On a memory file system, where no blocks can be shared. */
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp('/dev/shm/gymbus-doctor-');
});
afterEach(() => rm(folder, { recursive: true }));

it('a place where no blocks can be shared is fit for clones, with a note', async () => {
  const finding = await examineCloning({ path: folder, cloning: 'overlay', description: 'overlays here' });
  expect(finding).toMatchObject({ what: 'reflink', verdict: 'note' });
  expect(finding.found).toMatch(/^a clone took \d+ ms; overlays here$/);
  expect(await readdir(folder)).toEqual([]);
});

it('one that was to share blocks and cannot is not', async () => {
  await expect(examineCloning({ path: folder, cloning: 'reflink', description: '' })).rejects.toThrow();
  expect(await readdir(folder)).toEqual([]);
});
