import { createHash } from 'node:crypto';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Recipe } from './recipe.ts';

/** Raised when the builder itself makes something else of the same recipe. */
const BUILDER_VERSION = 1;

/** What the slow first half of a build (packages) depends on. */
export function baseDigest(recipe: Recipe): string {
  const { suite, packages, python_packages, exclude_paths, include_paths } = recipe;
  return sha256(JSON.stringify([BUILDER_VERSION, suite, packages, python_packages, exclude_paths, include_paths]));
}

/**
 * sha256 (hex) over everything that goes into an image: the recipe, every file of its trees with path, kind and
 * executable bit, and the builder. Where the trees lie on the build host does not count.
 */
export async function imageDigest(recipe: Recipe, commonFiles: readonly string[]): Promise<string> {
  const parts = [JSON.stringify([BUILDER_VERSION, { ...recipe, files: recipe.files.length }])];
  for (const tree of [...recipe.files, ...commonFiles]) parts.push(await treeDigest(tree));
  return sha256(parts.join('\n'));
}

/** sha256 of a file or of a directory with all below it, in the order of names. */
async function treeDigest(path: string): Promise<string> {
  const stats = await lstat(path);
  if (stats.isSymbolicLink()) return sha256(`link ${await readlink(path)}`);
  if (stats.isFile()) return sha256(`file ${stats.mode & 0o100 ? 'x' : '-'}\n`, await readFile(path));
  if (!stats.isDirectory()) throw new Error(`${path} is neither file, link nor directory`);
  const lines: string[] = [];
  for (const name of (await readdir(path)).sort()) lines.push(`${name} ${await treeDigest(join(path, name))}`);
  return sha256(`directory\n${lines.join('\n')}`);
}

function sha256(...parts: (string | Buffer)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}
