import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { runContained } from './command.ts';

interface ArchiveEntry {
  readonly name: string;
  readonly mode: number;
  readonly data: Buffer;
}

const DIRECTORY = 0o040755;
const EXECUTABLE = 0o100755;
const PLAIN = 0o100644;

/**
 * Write an initrd that does one thing: load `modules` (and what they depend on, in order), mount the root, hand over.
 * Debian's own holds 36 MB of drivers and a second udev, which under software emulation costs seconds.
 */
export async function writeInitrd(
  root: string,
  kernel: string,
  modules: readonly string[],
  initScript: string,
  target: string,
  signal: AbortSignal,
): Promise<void> {
  const paths = await modulePaths(root, kernel, modules, signal);
  const entries: ArchiveEntry[] = ['dev', 'proc', 'root', 'bin', 'lib'].map((name) => directory(name));
  entries.push({ name: 'bin/busybox', mode: EXECUTABLE, data: await readFile(join(root, 'usr/bin/busybox')) });
  entries.push({ name: 'init', mode: EXECUTABLE, data: await readFile(initScript) });
  for (const path of paths) {
    entries.push({ name: `lib/${basename(path)}`, mode: PLAIN, data: await readFile(join(root, path)) });
  }
  const list = paths.map((path) => `/lib/${basename(path)}\n`).join('');
  entries.push({ name: 'modules', mode: PLAIN, data: Buffer.from(list) });
  await writeFile(target, gzipSync(newcArchive(entries), { level: 6 }));
}

const directory = (name: string): ArchiveEntry => ({ name, mode: DIRECTORY, data: Buffer.alloc(0) });

async function modulePaths(root: string, kernel: string, modules: readonly string[], signal: AbortSignal) {
  const paths = new Set<string>();
  for (const name of modules) {
    const argv = ['chroot', root, '/usr/sbin/modprobe', '--show-depends', '--set-version', kernel, name] as const;
    const output = await runContained([...argv], { signal, timeoutMs: 30_000, env: { PATH: '/usr/sbin:/usr/bin' } });
    for (const line of output.split('\n')) {
      const [verb, path] = line.trim().split(/\s+/);
      if (verb === 'insmod' && path) paths.add(path);
    }
  }
  return [...paths];
}

/** The cpio format the kernel unpacks: hexadecimal headers, everything padded to four bytes. */
function newcArchive(entries: readonly ArchiveEntry[]): Buffer {
  const parts: Buffer[] = [];
  const end: ArchiveEntry = { name: 'TRAILER!!!', mode: 0, data: Buffer.alloc(0) };
  for (const [index, { name, mode, data }] of [...entries, end].entries()) {
    const fields = [index + 1, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, Buffer.byteLength(name) + 1, 0];
    const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${name}\0`;
    parts.push(padded(Buffer.from(header)), padded(data));
  }
  return Buffer.concat(parts);
}

const padded = (data: Buffer): Buffer => Buffer.concat([data, Buffer.alloc((4 - (data.length % 4)) % 4)]);
