import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { buildImage } from '../../images/build.ts';
import { hostAptSources } from '../../images/builder/apt.ts';
import { checkTools } from '../../images/builder/command.ts';
import { removeLeftovers } from '../../images/builder/leftovers.ts';
import { debianDesktop } from '../../images/debian-desktop/recipe.ts';
import { imageDigest } from '../../images/digest.ts';
import { Recipe } from '../../images/recipe.ts';
import { commonFiles, findRecipe } from '../../images/recipes.ts';
import { defaultCacheDir, findImage, listImages } from '../../images/store.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'gymbus-images-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

describe('recipe', () => {
  it('takes the ones that come with gymbus', () => {
    expect(findRecipe('debian-desktop').resolution).toEqual({ width: 1280, height: 720 });
    expect(() => findRecipe('windows')).toThrow('there are: debian-desktop, office');
  });

  it.each([
    ['a name that is no subject token', { name: 'debian.desktop' }],
    ['a package with an option in its name', { packages: ['--hook=x'] }],
    ['a Python package without an exact version', { python_packages: { pyautogui: '>=0.9' } }],
    ['a relative path', { files: ['files'] }],
    ['a policy that names no host', { network: { hosts: ['https://example.org/'] } }],
    ['an unknown field', { colour: 'red' }],
  ])('refuses %s', (_, change) => {
    expect(Recipe.safeParse({ ...debianDesktop, ...change }).success).toBe(false);
  });
});

describe('digest', () => {
  const digestOf = (recipe: Partial<Recipe>, common: string[] = []) =>
    imageDigest({ ...debianDesktop, ...recipe }, common);

  it('changes with every file that goes in, whatever changes about it', async () => {
    const tree = join(directory, 'tree');
    const source = debianDesktop.files[0] ?? '';
    await cp(source, tree, { recursive: true });
    const before = await digestOf({ files: [tree] });
    expect(await digestOf({ files: [source] }), 'where the tree lies does not count').toBe(before);

    const entries = await readdir(tree, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
    expect(files.length).toBeGreaterThan(20);
    for (const file of files) {
      const content = await readFile(file);
      await writeFile(file, Buffer.concat([content, Buffer.from('\n')]));
      expect(await digestOf({ files: [tree] }), relative(tree, file)).not.toBe(before);
      await writeFile(file, content);
    }
    expect(await digestOf({ files: [tree] })).toBe(before);

    const [file = ''] = files;
    await chmod(file, 0o755);
    expect(await digestOf({ files: [tree] }), 'executable').not.toBe(before);
    await chmod(file, 0o644);
    await rename(file, `${file}.moved`);
    expect(await digestOf({ files: [tree] }), 'renamed').not.toBe(before);
    await symlink('elsewhere', file);
    await rm(`${file}.moved`);
    expect(await digestOf({ files: [tree] }), 'a link').not.toBe(before);
  });

  it('changes with the recipe and with what every image has', async () => {
    const common = Object.values(commonFiles());
    const before = await digestOf({}, common);
    const changed = await Promise.all([
      digestOf({ memory_mib: 2048 }, common),
      digestOf({ packages: [...debianDesktop.packages, 'vim'] }, common),
      digestOf({ python_packages: {} }, common),
      digestOf({ kernel_command_line: 'root=/dev/vda' }, common),
      digestOf({ warmup: [] }, common),
      digestOf({ network: { hosts: ['example.org'] } }, common),
      digestOf({}, common.slice(1)),
    ]);
    expect(new Set([before, ...changed]).size).toBe(changed.length + 1);
    expect(await digestOf({}, common)).toBe(before);
  });
});

describe('cache', () => {
  it('is one place, however it is called', () => {
    expect(defaultCacheDir({ GYMBUS_CACHE: 'some/where' })).toBe(join(process.cwd(), 'some/where'));
    expect(defaultCacheDir({ GYMBUS_CACHE: '/else/where/' })).toBe('/else/where');
  });
});

describe('store', () => {
  const place = async (name: string, digest: string, created: string, parts = ['disk.raw', 'vmlinuz', 'initrd']) => {
    const at = join(directory, 'images', name, digest.slice(0, 16));
    await mkdir(at, { recursive: true });
    for (const part of parts) await writeFile(join(at, part), 'data');
    const { description, suite, resolution, video_memory_mib, memory_mib, vcpus } = debianDesktop;
    const { readiness, warmup, volatile_regions } = debianDesktop;
    const manifest = {
      ...{ schema: 'gymbus.image.v1', name, digest, description, suite, created_at: created, resolution },
      ...{ video_memory_mib, memory_mib, vcpus, cmdline: '', user: 'user', readiness, warmup, volatile_regions },
      ...{ versions: {}, disk_bytes: 4, disk_allocated_bytes: 4, build_s: 1 },
    };
    await writeFile(join(at, 'image.json'), JSON.stringify(manifest));
    return at;
  };
  const older = 'a'.repeat(64);
  const newer = `b${'a'.repeat(63)}`;

  it('finds by name the newest and by digest the one', async () => {
    expect(await listImages(directory)).toEqual([]);
    await place('desk', newer, '2026-01-02T00:00:00.000Z');
    await place('desk', older, '2026-01-01T00:00:00.000Z');
    await place('desk-2', older, '2026-01-03T00:00:00.000Z');
    expect((await findImage('desk', directory))?.digest).toBe(newer);
    expect((await findImage('desk@aaaa', directory))?.digest).toBe(older);
    expect(await findImage('desk@cccc', directory)).toBeNull();
    expect(await findImage('des', directory)).toBeNull();
    expect((await listImages(directory)).map((image) => image.name)).toEqual(['desk-2', 'desk', 'desk']);
  });

  it('does not see what is half made or half removed', async () => {
    const whole = await place('desk', newer, '2026-01-02T00:00:00.000Z');
    await rename(whole, join(directory, 'images', 'desk', '.build-baaaaaaaaaaaaaaa'));
    expect(await findImage('desk', directory)).toBeNull();
    await place('desk', older, '2026-01-01T00:00:00.000Z', ['vmlinuz', 'initrd']);
    expect(await listImages(directory)).toEqual([]);
    const at = await place('desk', older, '2026-01-01T00:00:00.000Z');
    expect(await listImages(directory)).toHaveLength(1);
    await writeFile(join(at, 'disk.raw'), 'da');
    expect(await listImages(directory), 'a disk of another size').toEqual([]);
    await writeFile(join(at, 'disk.raw'), 'data');
    await rm(join(at, 'image.json'));
    expect(await listImages(directory)).toEqual([]);
  });
});

describe('build', () => {
  const asRoot = it.skipIf(process.getuid?.() !== 0);

  it('names what is missing and the command that brings it', async () => {
    const absent = [
      { tool: 'no-such-tool', aptPackage: 'no-such-package' },
      { tool: 'sh', aptPackage: 'dash' },
    ];
    await expect(checkTools(absent)).rejects.toThrow(
      'cannot build an image without no-such-tool: apt-get install -y no-such-package',
    );
  });

  asRoot('leaves nothing of an interrupted build, nor of one that died', async () => {
    const images = join(directory, 'images', 'debian-desktop');
    await mkdir(join(images, '.build-dead', 'root'), { recursive: true });
    await writeFile(join(images, '.build-dead', 'root', 'file'), '');
    const interrupt = new AbortController();
    const build = buildImage(debianDesktop, {
      cacheDir: directory,
      signal: interrupt.signal,
      // Let the package tool begin its work in the tree, then pull the plug.
      onProgress: ({ phase }) => {
        if (phase === 'packages') setTimeout(() => interrupt.abort(new Error('enough')), 1_000);
      },
    });
    await expect(build).rejects.toThrow('enough');
    expect(await readdir(images)).toEqual([]);
    expect(await findImage('debian-desktop', directory)).toBeNull();
    expect(await processesNaming(directory)).toEqual([]);
  });

  asRoot.each([
    ['by its own name', 'cache', 'cache'],
    ['with a blank in its name', 'my cache', 'my cache'],
    ['by another name', 'cache', 'link'],
  ])('removes a tree, %s, without going through what is mounted in it', async (_, name, called) => {
    const inside = join(directory, name, '.build-dead', 'root', 'dev');
    const outside = join(directory, 'outside');
    await mkdir(inside, { recursive: true });
    await mkdir(outside);
    await writeFile(join(outside, 'precious'), '');
    if (called !== name) await symlink(name, join(directory, called));
    await succeeds('mount', '--bind', outside, inside);
    await removeLeftovers(join(directory, called));
    expect(await readdir(join(directory, name))).toEqual([]);
    expect(await readdir(outside)).toEqual(['precious']);
  });
});

describe('package sources', () => {
  it('are those of this machine for the same release, in both notations', async () => {
    await mkdir(join(directory, 'sources.list.d'));
    await writeFile(
      join(directory, 'sources.list'),
      [
        '# deb http://mirror.example/commented bookworm main',
        'deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # ours',
        'deb-src http://mirror.example/debian bookworm main',
        'deb http://other.example/tool stable main',
      ].join('\n'),
    );
    await writeFile(
      join(directory, 'sources.list.d', 'security.sources'),
      [
        'Types: deb deb-src\nURIs: http://mirror.example/security\nSuites: bookworm-security trixie-security',
        '# a comment\nComponents: main\nSigned-By: /usr/share/keyrings/debian.gpg\n',
        '\nTypes: deb\nURIs: http://off.example\nSuites: bookworm-updates\nComponents: main\nEnabled: no\n',
      ].join('\n'),
    );
    expect(await hostAptSources('bookworm', directory)).toEqual([
      'deb [signed-by=/k.gpg] http://mirror.example/debian bookworm main',
      'deb [signed-by=/usr/share/keyrings/debian.gpg] http://mirror.example/security bookworm-security main',
    ]);
    expect(await hostAptSources('trixie', directory), 'without the suite itself').toEqual([]);
  });
});

async function processesNaming(path: string): Promise<string[]> {
  const found: string[] = [];
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (command.includes(path)) found.push(command.replaceAll('\0', ' '));
  }
  return found;
}

async function succeeds(program: string, ...rest: string[]): Promise<void> {
  const child = spawn(program, rest, { stdio: 'inherit' });
  await ended(child);
  expect(child.exitCode).toBe(0);
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
}
