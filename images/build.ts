import { mkdir, readdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isRootWithoutMount, MOUNT_REMEDY } from '../runner/system/capabilities.ts';
import { checkTools, runContained } from './builder/command.ts';
import { writeDisk } from './builder/disk.ts';
import { writeInitrd } from './builder/initrd.ts';
import { removeTree, UNFINISHED } from './builder/leftovers.ts';
import { installPackages } from './builder/packages.ts';
import { type CommonFiles, finishRoot } from './builder/root.ts';
import { baseDigest, imageDigest } from './digest.ts';
import type { ImageManifest } from './manifest.ts';
import { placeImage, syncPath } from './place.ts';
import { Recipe } from './recipe.ts';
import { commonFiles } from './recipes.ts';
import { type Image, imageDirectory, readImage, SHORT_DIGEST } from './store.ts';

interface BuildProgress {
  readonly phase: 'waiting' | 'packages' | 'root' | 'disk' | 'finishing';
  /** Of the whole build, 0 to 1; null while another build is waited for. */
  readonly fraction: number | null;
  readonly message: string;
}

export interface BuildOptions {
  readonly cacheDir: string;
  readonly onProgress?: (progress: BuildProgress) => void;
  /** Ends the build; what it has made so far is removed before the promise rejects. */
  readonly signal?: AbortSignal;
}

/** Names of package trees begin so. */
export const BASE = '.base-';

/** Where in the whole build each phase begins; measured. */
const STARTS = { packages: 0, root: 0.8, disk: 0.88, finishing: 0.98 } as const;

/**
 * The image of a recipe: found in the cache when nothing that goes into it has changed, built otherwise, whole or not at
 * all, by one process at a time.
 */
export async function buildImage(recipeInput: Recipe, options: BuildOptions): Promise<Image> {
  const recipe = Recipe.parse(recipeInput);
  const common = commonFiles();
  const digest = await imageDigest(recipe, Object.values(common));
  const { name } = recipe;
  const found = await readImage(imageDirectory(options.cacheDir, name, digest));
  if (found) return found;

  if (process.getuid?.() !== 0) {
    throw new Error(`building the image ${name} needs root (it makes files of other users): run it with sudo`);
  }
  if (isRootWithoutMount()) throw new Error(`building the image ${name} mounts file systems: ${MOUNT_REMEDY}`);
  await checkTools();
  const onWait = (): void =>
    options.onProgress?.({ phase: 'waiting', fraction: null, message: 'another process builds or fetches it' });
  return placeImage(
    { ...{ name, digest, onWait }, cacheDir: options.cacheDir, signal: options.signal },
    (work, signal) => buildInto(work, recipe, digest, common, { ...options, signal }),
  );
}

async function buildInto(
  work: string,
  recipe: Recipe,
  digest: string,
  common: CommonFiles,
  options: BuildOptions & { signal: AbortSignal },
): Promise<void> {
  const started = performance.now();
  const { signal } = options;
  const report = (phase: keyof typeof STARTS, message: string, within = 0) => {
    const next = Object.values(STARTS).find((start) => start > STARTS[phase]) ?? 1;
    const fraction = STARTS[phase] + (next - STARTS[phase]) * within;
    options.onProgress?.({ phase, fraction, message });
  };

  const base = await baseTree(dirname(work), recipe, signal, (within, message) => report('packages', message, within));
  report('root', 'copying the package tree');
  const root = join(work, 'root');
  await runContained(['cp', '-a', '--reflink=auto', join(base, 'root'), root], { signal, timeoutMs: 10 * 60_000 });
  report('root', 'laying files and settings', 0.6);
  await finishRoot(root, recipe, common, signal);

  const kernel = await kernelVersion(root);
  const disk = join(work, 'disk.raw');
  await runContained(['cp', join(root, 'boot', `vmlinuz-${kernel}`), join(work, 'vmlinuz')], {
    signal,
    timeoutMs: 60_000,
  });
  await writeInitrd(root, kernel, recipe.initrd_modules, common.initrdInit, join(work, 'initrd'), signal);
  report('disk', `writing ${recipe.disk_mib} MiB of file system`);
  await writeDisk(root, recipe.disk_mib * 2 ** 20, disk, signal);
  report('finishing', 'making it durable');
  await removeTree(root);

  const lock = await readFile(join(base, 'packages.lock'), 'utf8');
  await writeFile(join(work, 'packages.lock'), lock);
  const stats = await stat(disk);
  const manifest: ImageManifest = {
    schema: 'gymbus.image.v1',
    name: recipe.name,
    digest,
    description: recipe.description,
    suite: recipe.suite,
    created_at: new Date().toISOString(),
    resolution: recipe.resolution,
    video_memory_mib: recipe.video_memory_mib,
    memory_mib: recipe.memory_mib,
    vcpus: recipe.vcpus,
    cmdline: recipe.kernel_command_line,
    user: recipe.user.name,
    readiness: recipe.readiness,
    warmup: recipe.warmup,
    volatile_regions: recipe.volatile_regions,
    network: recipe.network,
    versions: { kernel, ...mainVersions(lock, recipe.main_packages) },
    disk_bytes: stats.size,
    disk_allocated_bytes: stats.blocks * 512,
    build_s: Math.round((performance.now() - started) / 100) / 10,
  };
  await writeFile(join(work, 'image.json'), `${JSON.stringify(manifest, null, 2)}\n`);
}

/**
 * The tree of packages, kept between builds: a change of the image's own files then costs seconds, not minutes.
 * Only the newest one of an image is kept.
 */
async function baseTree(
  parent: string,
  recipe: Recipe,
  signal: AbortSignal,
  onProgress: (fraction: number, message: string) => void,
): Promise<string> {
  const base = join(parent, `${BASE}${baseDigest(recipe).slice(0, SHORT_DIGEST)}`);
  if (await exists(join(base, 'packages.lock'))) return base;
  const work = join(parent, `${UNFINISHED}base`);
  try {
    await mkdir(work);
    await installPackages(recipe, work, { signal, onProgress });
    for (const name of await readdir(parent)) if (name.startsWith(BASE)) await removeTree(join(parent, name));
    // Ten thousand files: the whole file system at once. One lost in a power failure would be missing in every image made of this.
    await runContained(['sync', '--file-system', work], { signal, timeoutMs: 10 * 60_000 });
    await rename(work, base);
    await syncPath(parent);
  } finally {
    await removeTree(work);
  }
  return base;
}

async function kernelVersion(root: string): Promise<string> {
  const kernels = (await readdir(join(root, 'boot'))).filter((name) => name.startsWith('vmlinuz-'));
  if (kernels.length !== 1 || !kernels[0]) throw new Error(`the image holds ${kernels.length} kernels; it needs one`);
  return kernels[0].slice('vmlinuz-'.length);
}

function mainVersions(lock: string, names: readonly string[]): Record<string, string> {
  const versions = new Map(lock.split('\n').map((line) => line.split('=', 2) as [string, string]));
  return Object.fromEntries(names.flatMap((name) => (versions.has(name) ? [[name, versions.get(name) ?? '']] : [])));
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
