import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ensurePackages, missingPackages } from '../../infra/packages.ts';
import { atLeast, ensureTool, findBuilt, TOOLS, ToolMissing } from '../../infra/tools.ts';
import { findTool } from '../../runner/system/find-tool.ts';
import { lockFile } from '../../runner/system/lock.ts';
import { cacheDir } from '../support/nats.ts';

const { PATH } = process.env;
let folder = '';

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-tools-'));
});
afterEach(async () => {
  process.env.PATH = PATH;
  await rm(folder, { recursive: true, force: true });
});

/** A PATH with nothing on it but these. */
async function onlyOnPath(tools: Record<string, string>): Promise<void> {
  const bin = path.join(folder, 'path');
  await mkdir(bin);
  for (const [name, target] of Object.entries({ flock: 'flock', cat: 'cat', ...tools })) {
    await symlink(path.isAbsolute(target) ? target : ((await findTool(target)) ?? ''), path.join(bin, name));
  }
  process.env.PATH = bin;
}

it('builds a tool once, however many ask, and finds it the next time', async () => {
  const told: string[] = [];
  const ask = () => ensureTool('nats', { cacheDir: folder, onProgress: (message) => told.push(message) });
  const binaries = await Promise.all([ask(), ask(), ask()]);
  const binary = path.join(folder, 'bin/nats-0.5.0/nats');
  expect(new Set(binaries)).toEqual(new Set([binary]));
  expect(told.filter((message) => message.includes('built in'))).toHaveLength(1);
  expect((await execa(binary, ['--help'], { all: true, reject: false })).all).toContain('NATS');
  told.length = 0;
  expect(await ask()).toBe(binary);
  expect(told).toEqual([]);
  expect((await readdir(path.join(folder, 'bin'))).filter((name) => name.startsWith('.building'))).toEqual([]);
}, 300_000);

it('leaves nothing of a build that is broken off, and the next one works', async () => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error('broken off')), 300);
  await expect(ensureTool('versitygw', { cacheDir: folder, signal: stop.signal })).rejects.toThrow('broken off');
  expect((await readdir(path.join(folder, 'bin'))).filter((name) => !name.startsWith('.lock'))).toEqual([]);
  await using _lock = await lockFile(path.join(folder, 'bin/.lock-versitygw-1.8.0'), { waitMs: 0 });
});

it('says what to do without Go, or with one that is too old', async () => {
  await onlyOnPath({});
  const build = () => ensureTool('nats-server', { cacheDir: folder });
  await expect(build()).rejects.toThrow(ToolMissing);
  await expect(build()).rejects.toThrow('there is no Go here: install Go 1.26 or newer');
  await expect(build()).rejects.toThrow('or put nats-server 2.12 or newer on PATH');
  const old = path.join(folder, 'old-go');
  await writeFile(old, '#!/bin/sh\necho go1.24.5\n');
  await chmod(old, 0o755);
  await symlink(old, path.join(folder, 'path/go'));
  await expect(build()).rejects.toThrow('Go here is go1.24.5');
});

it('takes a nats-server on PATH that is new enough, and no older one', async () => {
  const built = await ensureTool('nats-server', { cacheDir });
  await onlyOnPath({ 'nats-server': built });
  const onPath = path.join(folder, 'path/nats-server');
  expect(await ensureTool('nats-server', { cacheDir: folder })).toBe(onPath);
  expect(await findBuilt('nats-server', folder)).toMatchObject({
    file: onPath,
    version: expect.stringMatching(/^\d+\.\d+\.\d+/),
  });
  await rm(path.join(folder, 'path/nats-server'));
  const old = path.join(folder, 'path/nats-server');
  await writeFile(old, '#!/bin/sh\necho nats-server: v2.9.10\n');
  await chmod(old, 0o755);
  await symlink('/bin/sh', path.join(folder, 'path/sh'));
  // Its own build is wanted then, for which there is no Go here.
  await expect(ensureTool('nats-server', { cacheDir: folder })).rejects.toThrow(ToolMissing);
});

it('reads versions however they are written', () => {
  expect(atLeast('nats-server: v2.15.2', [2, 12])).toBe(true);
  expect(atLeast('nats-server: v2.12.0-RC.1', [2, 12])).toBe(true);
  expect(atLeast('nats-server: v2.9.10', [2, 12])).toBe(false);
  expect(atLeast('go1.26.8', [1, 26])).toBe(true);
  expect(atLeast('go1.3', [1, 26])).toBe(false);
  expect(atLeast('norev', [0, 0])).toBe(false);
  expect(Object.values(TOOLS).every(({ version }) => /^\d+\.\d+\.\d+$/.test(version))).toBe(true);
});

it('knows which packages are missing by their tools', async () => {
  const requirements = [
    { package: 'coreutils', tools: ['cat', 'ls'] },
    { package: 'no-such-package', tools: ['cat', 'no-such-tool'] },
    { package: 'no-such-package', tools: ['another-missing-tool'] },
  ];
  expect(await missingPackages(requirements)).toEqual(['no-such-package']);
  expect(await ensurePackages(requirements.slice(0, 1))).toEqual([]);
  await onlyOnPath({});
  // In the administrators' folders, which are on nobody's PATH but root's.
  expect(await findTool('mount.nfs-none')).toBeNull();
});

it('names the exact command where it may not install', async () => {
  const packagesModule = path.resolve(import.meta.dirname, '../../infra/packages.ts');
  const script = `import { ensurePackages } from ${JSON.stringify(packagesModule)};
    await ensurePackages([{ package: 'xfsprogs', tools: ['no-such-tool'] }, { package: 'mmdebstrap', tools: ['no-such-tool'] }])
      .catch((error) => console.log(error.name + ': ' + error.message));`;
  const node = process.execPath;
  const tsx = path.resolve(import.meta.dirname, '../../node_modules/tsx/dist/cli.mjs');
  const unprivileged =
    process.getuid?.() === 0 ? ['setpriv', '--reuid', '65534', '--clear-groups', '--no-new-privs'] : ['env'];
  const [command = '', ...before] = unprivileged;
  const { stdout, stderr } = await execa(command, [...before, node, tsx, '--input-type=module', '-e', script], {
    env: { PATH: '/usr/sbin:/usr/bin', HOME: '/nonexistent', TMPDIR: '/tmp' },
    extendEnv: false,
    reject: false,
  });
  expect(stdout, stderr).toContain('PackagesMissing: missing: xfsprogs, mmdebstrap.');
  expect(stdout).toContain(
    'sudo apt-get update && sudo apt-get install --yes --no-install-recommends xfsprogs mmdebstrap',
  );
});
