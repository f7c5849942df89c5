import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openRunRoot } from '../../runner/replica/run-root.ts';

/** Mounting takes root; so does a runner that mounts its storage area. */
describe.skipIf(process.getuid?.() !== 0)('the place for run folders', () => {
  let folder: string;
  const parent = (name: string): string => path.join(folder, name);
  beforeEach(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'gymbus-run-'));
    for (const name of ['sealed', 'free']) {
      await mkdir(parent(name));
      await execa('mount', ['-t', 'tmpfs', 'gymbus-test', parent(name)]);
    }
    await mkdir(path.join(parent('sealed'), 'gymbus'));
    await execa('mount', ['-o', 'remount,ro', parent('sealed')]);
  });
  afterEach(async () => {
    for (const name of ['sealed', 'free']) await execa('umount', [parent(name)]);
    await rm(folder, { recursive: true });
  });

  it('is in memory, and one that may be written to', async () => {
    const parents = ['/proc', parent('sealed'), parent('free')];
    expect(await openRunRoot(parents)).toBe(path.join(parent('free'), 'gymbus'));
    expect(await openRunRoot(parents), 'again').toBe(path.join(parent('free'), 'gymbus'));
    await expect(openRunRoot(parents.slice(0, 2))).rejects.toThrow('is a memory file system with a gymbus folder');
  });
});
