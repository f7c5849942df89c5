import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { lockFile } from '../../runner/system/lock.ts';
import { cacheDir } from './nats.ts';

/** About ten wheels from the package registry. */
const INSTALL_MS = 5 * 60_000;

/**
 * Python with the foreign clients of `requirements.txt` (boto3, nats-py, jsonschema), made once and found again by the
 * digest of that file and of the interpreter. @returns the path of its interpreter
 */
export async function ensurePython(): Promise<string> {
  const requirements = path.join(import.meta.dirname, 'requirements.txt');
  const { stdout: version } = await execa('python3', ['-c', 'import sys; print(sys.version)']);
  const digest = createHash('sha256')
    .update(await readFile(requirements))
    .update(version)
    .digest('hex')
    .slice(0, 16);
  const folder = path.join(cacheDir, `venv-${digest}`);
  const python = path.join(folder, 'bin/python');
  if (existsSync(python)) return python;
  await using _lock = await lockFile(path.join(cacheDir, `.lock-venv-${digest}`));
  if (existsSync(python)) return python;
  const building = `.building-venv-${digest}`;
  // The lock says that nobody is building: what is there was left by a build that was killed.
  for (const name of await readdir(cacheDir)) {
    if (name === building) await rm(path.join(cacheDir, name), { recursive: true, force: true });
  }
  const made = await execa('python3', ['-m', 'venv', path.join(cacheDir, building)], {
    timeout: INSTALL_MS,
    reject: false,
  });
  if (made.failed) throw new Error(`python3 -m venv failed; on Debian it is the package python3-venv:\n${made.stdout}`);
  const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', '-r', requirements];
  await execa(path.join(cacheDir, building, 'bin/python'), install, { timeout: INSTALL_MS });
  // Only its console scripts mind being moved, and nobody calls them.
  await rename(path.join(cacheDir, building), folder);
  return python;
}
