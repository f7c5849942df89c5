import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { imageLock } from '../../images/place.ts';
import { listImages } from '../../images/store.ts';
import { templateLock } from '../../runner/replica/template.ts';
import { openArea, removeArea } from '../../runner/storage/area.ts';
import { lockFile } from '../../runner/system/lock.ts';
import { runGymbus } from '../support/command.ts';
import { makeUpImage } from '../support/made-up-image.ts';

const digest = (letter: string): string => letter.repeat(64);
let folder: string;
let cache: string;
let data: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-gc-'));
  [cache = '', data = ''] = ['cache', 'data'].map((name) => path.join(folder, name));
  for (const [day, letter] of ['a', 'b', 'c', 'd'].entries()) {
    await makeUpImage(cache, { name: 'desk', digest: digest(letter), createdAt: `2026-01-0${day + 1}T00:00:00.000Z` });
  }
  await makeUpImage(cache, { name: 'office', digest: digest('e') });
});
afterEach(async () => {
  await removeArea(data);
  await rm(folder, { recursive: true, force: true });
});

const gc = (...args: string[]) =>
  runGymbus(['image', 'gc', ...args], {
    ...{ GYMBUS_CACHE: cache, GYMBUS_DATA: data, GYMBUS_IMAGES: 'desk@bb,office', GYMBUS_DISK_FLOOR_GIB: '1' },
  });
const there = async (): Promise<string[]> =>
  (await listImages(cache)).map((image) => `${image.name}@${image.digest[0]}`).sort();

it('shows what nobody needs, and removes it only when it is told to', async () => {
  await mkdir(path.join(cache, 'images/desk/.build-dead'));
  await mkdir(path.join(cache, 'images/desk/.base-0123456789abcdef/root'), { recursive: true });
  await writeFile(path.join(cache, 'images/desk/.base-0123456789abcdef/root/file'), Buffer.alloc(2 ** 20, 1));
  const all = ['desk@a', 'desk@b', 'desk@c', 'desk@d', 'office@e'];

  const shown = await gc();
  expect(shown.exitCode, shown.stderr).toBe(0);
  expect(shown.stdout.split('\n').map((line) => line.replace(/ +\d+ MiB$/, ''))).toEqual([
    'desk@cccccccccccccccc',
    'desk@aaaaaaaaaaaaaaaa',
    expect.stringMatching(/^(packages of desk \(0123456789abcdef\)|unfinished desk)$/),
    expect.stringMatching(/^(packages of desk \(0123456789abcdef\)|unfinished desk)$/),
  ]);
  expect(shown.stdout).toMatch(/^desk@c+ {2}2 MiB$/m);
  expect(shown.stderr).toMatch(/^4 to be removed: [456] MiB; gymbus image gc --delete does it$/);
  expect(await there()).toEqual(all);

  const done = await gc('--delete');
  expect(done.stderr).toMatch(/^4 removed: [456] MiB$/);
  // The newest of each name, and the one that is configured.
  expect(await there()).toEqual(['desk@b', 'desk@d', 'office@e']);
  expect(await readdir(path.join(cache, 'images/desk'))).toHaveLength(2);
  expect(await gc('--delete')).toMatchObject({ stdout: '', stderr: expect.stringContaining('0 removed') });
});

it('leaves what another process works on', async () => {
  await using _lock = await lockFile(imageLock(cache, 'desk'));
  const { exitCode, stderr } = await gc('--delete');
  expect(exitCode).toBe(0);
  expect(stderr).toContain('desk@cccccccccccccccc is left: an image desk is being built or fetched');
  expect(await there()).toHaveLength(5);
});

it.skipIf(process.getuid?.() !== 0)('keeps the images that templates were made of', async () => {
  const area = await openArea({ dataDir: data, floorBytes: 2 ** 30 });
  const templates = path.join(area.path, 'templates');
  await mkdir(path.join(templates, '0a'), { recursive: true });
  await writeFile(path.join(templates, '0a', 'template.json'), JSON.stringify({ image_digest: digest('a') }));
  // Left by a process that was killed: nobody makes it.
  await mkdir(path.join(templates, '.building-0b-uuid'));
  {
    await using _making = await lockFile(templateLock(area.path, '0b'));
    expect(await gc('--delete')).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('makes a template') });
  }
  await mkdir(path.join(templates, '0c'));
  const refused = await gc('--delete');
  expect(refused).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(path.join(templates, '0c')) });
  expect(await there()).toHaveLength(5);
  await rm(path.join(templates, '0c'), { recursive: true });
  await area[Symbol.asyncDispose]();
  expect(await gc('--delete')).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/^desk@c+ +2 MiB$/) });
  expect(await there()).toEqual(['desk@a', 'desk@b', 'desk@d', 'office@e']);
});
