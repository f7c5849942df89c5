import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Recipe } from '../recipe.ts';
import { hostAptOptions, hostAptSources } from './apt.ts';
import { type RunOptions, runContained } from './command.ts';

/** A slow mirror may take long over 300 MB; longer than this it does not answer. */
const PACKAGES_TIMEOUT_MS = 30 * 60_000;
const PYTHON_TIMEOUT_MS = 10 * 60_000;
const DIST_PACKAGES = 'usr/local/lib/python3.11/dist-packages';

export interface PackageOptions {
  readonly signal: AbortSignal;
  /** `fraction` of the packages downloaded, unpacked and set up, 0 to 1. */
  readonly onProgress: (fraction: number, message: string) => void;
}

/**
 * Make `<directory>/root`, a Debian tree with the recipe's packages in it, and `<directory>/packages.lock`.
 * The Python packages are fetched at the same time: they need nothing of the tree.
 */
export async function installPackages(recipe: Recipe, directory: string, options: PackageOptions): Promise<void> {
  const python = join(directory, 'python');
  const failed = new AbortController();
  const signal = AbortSignal.any([options.signal, failed.signal]);
  const both = [
    installDebian(recipe, directory, { ...options, signal }),
    installPython(recipe, python, { signal, timeoutMs: PYTHON_TIMEOUT_MS }),
  ];
  // The first failure ends the other; both must be over before anybody cleans up behind them.
  for (const one of both) one.catch((error) => failed.abort(error));
  await Promise.allSettled(both);
  options.signal.throwIfAborted();
  await Promise.all(both);
  const target = join(directory, 'root', DIST_PACKAGES);
  await mkdir(join(directory, 'root', 'usr/local/lib/python3.11'), { recursive: true });
  await runContained(['cp', '-a', '-T', python, target], { signal: options.signal, timeoutMs: 60_000 });
  await rm(python, { recursive: true });
  await writeFile(join(directory, 'packages.lock'), await lockOf(recipe, join(directory, 'root'), options.signal));
}

async function installDebian(recipe: Recipe, directory: string, options: PackageOptions): Promise<void> {
  const aptOptions = join(directory, 'apt.conf');
  await writeFile(aptOptions, await hostAptOptions());
  const dpkg = [
    ...recipe.exclude_paths.map((pattern) => `--dpkgopt=path-exclude=${pattern}`),
    ...recipe.include_paths.map((pattern) => `--dpkgopt=path-include=${pattern}`),
  ];
  await runContained(
    [
      'mmdebstrap',
      '--verbose',
      '--mode=root',
      '--variant=minbase',
      '--format=directory',
      `--aptopt=${aptOptions}`,
      '--aptopt=Acquire::Languages "none"',
      '--aptopt=APT::Install-Recommends "false"',
      ...dpkg,
      `--include=${recipe.packages.join(',')}`,
      recipe.suite,
      join(directory, 'root'),
      ...(await hostAptSources(recipe.suite)),
    ],
    {
      signal: options.signal,
      timeoutMs: PACKAGES_TIMEOUT_MS,
      onLine: progressOf(options.onProgress),
      // The kernel's package would make an initrd of 36 MB in 20 s; the image has its own of 1 MB.
      env: { INITRD: 'No', DEBIAN_FRONTEND: 'noninteractive', TMPDIR: directory },
    },
  );
  await rm(aptOptions);
}

/** apt and dpkg name each package three times: downloaded, unpacked, set up. How many there are, apt says first. */
function progressOf(report: PackageOptions['onProgress']): (line: string) => void {
  let expected = 0;
  let done = 0;
  return (line) => {
    const count = /(\d+) newly installed/.exec(line);
    if (count) expected += Number(count[1]) * 3;
    const step = /^(Get:\d+ \S+ \S+ \S+ (\S+) .*\[|Unpacking (\S+)|Setting up (\S+))/.exec(line);
    if (!step) return;
    done += 1;
    report(Math.min(done / Math.max(expected, 1200), 1), step[2] ?? step[3] ?? step[4] ?? '');
  };
}

/** Fetch the pinned pure-Python packages into `target`, for a Python of another version if need be. */
async function installPython(recipe: Recipe, target: string, options: RunOptions): Promise<void> {
  await mkdir(target);
  const pinned = Object.entries(recipe.python_packages).map(([name, version]) => `${name}==${version}`);
  if (pinned.length === 0) return;
  const flags = ['--no-deps', '--no-compile', '--root-user-action=ignore', '--disable-pip-version-check', '--quiet'];
  await runContained(['pip3', 'install', ...flags, '--target', target, ...pinned], options);
  for (const name of await readdir(target, { recursive: true })) {
    if (name.endsWith('.so')) throw new Error(`${name} is compiled: only pure-Python packages go into an image by pip`);
  }
}

/** `name=version` of every package, sorted; those installed by pip as `python:name=version`. */
async function lockOf(recipe: Recipe, root: string, signal: AbortSignal): Promise<string> {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query's own notation
  const format = '${Package}=${Version}\n';
  const stdout = await runContained(['dpkg-query', `--admindir=${root}/var/lib/dpkg`, '-W', '-f', format], {
    signal,
    timeoutMs: 30_000,
  });
  const python = Object.entries(recipe.python_packages).map(([name, version]) => `python:${name}=${version}`);
  return `${[...stdout.split('\n').filter(Boolean), ...python].sort().join('\n')}\n`;
}
