import { chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { removeRunFolder } from '../../runner/qemu/run-folder.ts';

let folder: string;
let run: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-run-folder-'));
  run = path.join(folder, 'run');
  await mkdir(run);
  await mkdir(path.join(folder, 'other'));
  await writeFile(path.join(folder, 'other', 'file'), 'kept');
});
afterEach(() => rm(folder, { recursive: true }));

describe('a run folder', () => {
  it('is removed with the files and links in it, once or twice, and nothing that these lead to', async () => {
    await writeFile(path.join(run, 'screen.ppm'), 'picture');
    await symlink(path.join(folder, 'other'), path.join(run, 'link'));
    await removeRunFolder(run);
    await removeRunFolder(run);
    expect(await readdir(folder)).toEqual(['other']);
    expect(await readFile(path.join(folder, 'other', 'file'), 'utf8')).toBe('kept');
  });

  it('is not gone through when a link is in its place', async () => {
    await rm(run, { recursive: true });
    await symlink(path.join(folder, 'other'), run);
    await expect(removeRunFolder(run)).rejects.toMatchObject({ code: 'ENOTDIR' });
    expect((await lstat(run)).isSymbolicLink()).toBe(true);
    expect(await readdir(path.join(folder, 'other'))).toEqual(['file']);
  });

  it.skipIf(process.getuid?.() !== 0)(
    'with a folder in it is taken from QEMU’s user and kept, as an error',
    async () => {
      await mkdir(path.join(run, 'deep'));
      await writeFile(path.join(run, 'deep', 'file'), '');
      await writeFile(path.join(run, 'screen.ppm'), '');
      await chown(run, 65_534, 65_534);
      await expect(removeRunFolder(run)).rejects.toThrow(`${run} has folders in it (deep)`);
      expect(await readdir(run)).toEqual(['deep']);
      expect(await readdir(path.join(run, 'deep'))).toEqual(['file']);
      const { uid, mode } = await stat(run);
      expect([uid, mode & 0o777]).toEqual([0, 0o700]);
    },
  );
});
