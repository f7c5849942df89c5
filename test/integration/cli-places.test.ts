import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runGymbus } from '../support/command.ts';

/** What commands say of folders that cannot be, and of images that are not there. */
let folder: string;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-cli-places-'));
  await runGymbus(['--version'], {});
  env = { GYMBUS_DATA: folder, NATS_URL: '', AWS_ENDPOINT_URL: '' };
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('a folder that cannot be is named, with the variable that names another', () => {
  it.each([
    ['/proc/x/y', /cannot mkdir \/proc\/x \(ENOENT\): no folder can be made there: set GYMBUS_DATA and GYMBUS_CACHE/],
    [
      '/dev/null',
      /cannot (mkdir|open) \/dev\/null\S* \((EEXIST|ENOTDIR)\): there is a file where a folder should be: .*GYMBUS_DATA/,
    ],
    [
      '/dev/null/x',
      /cannot (mkdir|open) \/dev\/null\S* \((EEXIST|ENOTDIR)\): there is a file where a folder should be: .*GYMBUS_DATA/,
    ],
    [
      `/tmp/${'x'.repeat(300)}`,
      /cannot (mkdir|open) \/tmp\/x{195}\.\.\. \(ENAMETOOLONG\): set GYMBUS_DATA and GYMBUS_CACHE/,
    ],
  ])(
    '%s',
    async (place, said) => {
      const calls: [string, string][] = [
        ...['up', 'demo', 'run', 'doctor'].map((call): [string, string] => [call, 'GYMBUS_DATA']),
        ...['up', 'image build'].map((call): [string, string] => [call, 'GYMBUS_CACHE']),
      ];
      for (const [call, variable] of calls) {
        const { exitCode, stdout, stderr } = await runGymbus(call.split(' '), {
          ...env,
          NATS_URL: '',
          [variable]: place,
        });
        const all = `${call} ${variable}: ${stdout}${stderr}`;
        expect(all).toMatch(said);
        expect(all).not.toContain('    at ');
        expect(exitCode, all).toBe(1);
      }
    },
    240_000,
  );
});

it.each(['run', 'up', 'demo'])(
  'says of an image that is pinned and not there which it is, first of all: %s',
  async (command) => {
    const pinned = { ...env, GYMBUS_CACHE: folder, GYMBUS_IMAGES: 'debian-desktop@0123abcd' };
    const { exitCode, stderr } = await runGymbus([command], pinned);
    expect(exitCode, stderr).toBe(1);
    expect(stderr).toContain(
      `gymbus: GYMBUS_IMAGES names debian-desktop@0123abcd, which is not in ${folder}; there is no build of debian-desktop: name it without @ and make it with gymbus image build; gymbus image pull debian-desktop@0123abcd fetches it from a bucket that has it`,
    );
  },
);

it('says of an image that is pinned which others there are', async () => {
  const { exitCode, stderr } = await runGymbus(['run'], { ...env, GYMBUS_IMAGES: 'debian-desktop@0000' });
  expect(exitCode, stderr).toBe(1);
  expect(stderr).toMatch(/names debian-desktop@0000, which is not in \S+; there are debian-desktop@[0-9a-f]{16}/);
});
