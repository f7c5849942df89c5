import { chmod, chown, copyFile, lstat, mkdir, readdir, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Recipe } from '../recipe.ts';
import { runContained } from './command.ts';

/** What a build adds to every guest, whatever its recipe: beside the recipe's own trees. */
export interface CommonFiles {
  /** A tree laid over the root first. */
  readonly tree: string;
  readonly helper: string;
  /** The guest's end of the network, started where a job asked for hosts. */
  readonly network: string;
  readonly initrdInit: string;
}

const PROGRAMS = '/usr/local/lib/gymbus';
const CHROOT_TIMEOUT_MS = 120_000;

/** Turn a tree of packages into the guest's root: user, files, units, time zone, identity. */
export async function finishRoot(
  root: string,
  recipe: Recipe,
  common: CommonFiles,
  signal: AbortSignal,
): Promise<void> {
  const chroot = (...argv: string[]) =>
    runContained(['chroot', root, ...argv], {
      signal,
      timeoutMs: CHROOT_TIMEOUT_MS,
      env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', LANG: 'C.UTF-8' },
    });
  const { user } = recipe;
  const home = `/home/${user.name}`;

  await chroot('useradd', '-m', '-k', '/var/empty', '-u', String(user.uid), '-U', '-s', '/bin/bash', user.name);
  for (const group of user.groups) await chroot('usermod', '-a', '-G', group, user.name);
  await writeFile(join(root, 'tmp/passwords'), `root:${user.password}\n${user.name}:${user.password}\n`, {
    mode: 0o600,
  });
  // Few rounds: a password check under software emulation should not take a second. The password is public anyway.
  await chroot('sh', '-c', 'chpasswd -c SHA512 -s 1000 < /tmp/passwords');
  await rm(join(root, 'tmp/passwords'));

  await writeFile(join(root, 'etc/hostname'), 'desktop\n');
  await writeFile(join(root, 'etc/hosts'), '127.0.0.1 localhost\n::1 localhost\n');
  await writeFile(join(root, 'etc/fstab'), '/dev/vda / ext4 rw,noatime 0 0\n');
  await replaceLink(join(root, 'etc/localtime'), `/usr/share/zoneinfo/${recipe.time_zone}`);
  await writeFile(join(root, 'etc/timezone'), `${recipe.time_zone}\n`);
  // One identity for systemd and D-Bus, so that a replica is made another machine by writing one file.
  await writeFile(join(root, 'etc/machine-id'), `${'0'.repeat(31)}1\n`);
  await mkdir(join(root, 'var/lib/dbus'), { recursive: true });
  await replaceLink(join(root, 'var/lib/dbus/machine-id'), '/etc/machine-id');

  for (const tree of [common.tree, ...recipe.files]) await layTree(tree, root);
  await mkdir(join(root, PROGRAMS), { recursive: true });
  for (const program of [common.helper, common.network]) {
    const at = join(root, PROGRAMS, basename(program));
    await copyFile(program, at);
    await chmod(at, 0o755);
  }
  for (const directory of recipe.directories) await mkdir(join(root, directory), { recursive: true });
  await writeFile(join(root, home, '.Xauthority'), authorityEntry(), { mode: 0o600 });
  await chroot('chown', '-R', `${user.name}:${user.name}`, home);

  for (const unit of recipe.masked_units) await mask(root, unit);
  if (recipe.enabled_units.length > 0) await chroot('systemctl', 'enable', ...recipe.enabled_units);
  for (const [program = '', ...rest] of recipe.finish) await chroot(program, ...rest);

  // Nothing of the build host stays: how it reaches its mirror is its own affair.
  for (const path of ['etc/apt/sources.list', 'etc/apt/apt.conf.d/99mmdebstrap', 'etc/resolv.conf']) {
    await rm(join(root, path), { force: true });
  }
  for (const path of ['var/cache/apt', 'var/lib/apt/lists', 'var/log', 'tmp', 'run']) await empty(join(root, path));
}

/** Copy a tree over the root: owned by root, modes by the executable bit alone, since that is all that git keeps. */
async function layTree(from: string, to: string): Promise<void> {
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const source = join(from, entry.name);
    const target = join(to, entry.name);
    if (entry.isDirectory()) {
      await mkdir(target, { recursive: true });
      await layTree(source, target);
    } else if (entry.isSymbolicLink()) {
      await replaceLink(target, await readlink(source));
    } else {
      await rm(target, { force: true });
      await copyFile(source, target);
      const executable = ((await lstat(source)).mode & 0o100) !== 0;
      // sudo refuses rules that others could write or, by custom, read.
      await chmod(target, target.includes('/etc/sudoers.d/') ? 0o440 : executable ? 0o755 : 0o644);
      await chown(target, 0, 0);
    }
  }
}

async function mask(root: string, unit: string): Promise<void> {
  const [kind, name] = unit.startsWith('generator:') ? ['system-generators', unit.slice(10)] : ['system', unit];
  const directory = join(root, 'etc/systemd', kind);
  await mkdir(directory, { recursive: true });
  await replaceLink(join(directory, name ?? unit), '/dev/null');
}

async function replaceLink(path: string, target: string): Promise<void> {
  await rm(path, { force: true });
  await symlink(target, path);
}

async function empty(directory: string): Promise<void> {
  for (const name of await readdir(directory)) await rm(join(directory, name), { recursive: true, force: true });
}

/**
 * One entry, for any host and display. The X server asks nobody on this machine for it, but python-xlib prints a
 * warning on standard output, into the results of commands, when the file is empty.
 */
function authorityEntry(): Buffer {
  const counted = (data: Buffer) => Buffer.concat([Buffer.from([data.length >> 8, data.length & 255]), data]);
  const wild = Buffer.from([0xff, 0xff]);
  const parts = [Buffer.alloc(0), Buffer.alloc(0), Buffer.from('MIT-MAGIC-COOKIE-1'), Buffer.alloc(16)];
  return Buffer.concat([wild, ...parts.map(counted)]);
}
