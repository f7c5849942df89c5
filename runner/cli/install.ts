import { imageRequirements } from '../../images/requirements.ts';
import { ensurePackages, type PackageRequirement, PackagesMissing } from '../../infra/packages.ts';
import { ensureTool, ToolMissing, type ToolName } from '../../infra/tools.ts';
import { CliError } from './error.ts';
import { progressView } from './progress.ts';

/** What the engine runs. */
const ENGINE: readonly PackageRequirement[] = [
  { package: 'qemu-system-x86', tools: ['qemu-system-x86_64'] },
  { package: 'xfsprogs', tools: ['mkfs.xfs'] },
  { package: 'util-linux', tools: ['setpriv', 'flock', 'prlimit'] },
  { package: 'mount', tools: ['mount', 'umount'] },
  { package: 'perl-base', tools: ['perl'] },
];

const IMAGES: readonly PackageRequirement[] = imageRequirements.map(({ tool, aptPackage }) => ({
  package: aptPackage,
  tools: [tool],
}));

/** Debian packages for engine and image builder, installed where missing; says what it does. @throws CliError */
export async function ensureHostPackages(signal: AbortSignal, more: readonly PackageRequirement[] = []): Promise<void> {
  await explained(() =>
    ensurePackages([...ENGINE, ...IMAGES, ...more], {
      signal,
      onProgress: (message) => console.error(`packages: ${message}`),
    }),
  );
}

/** Servers and tools of the local stack, built where missing. @returns their paths @throws CliError */
export async function ensureTools(
  names: readonly ToolName[],
  cacheDir: string,
  signal: AbortSignal,
): Promise<string[]> {
  const paths: string[] = [];
  for (const name of names) {
    const view = progressView(`tool ${name}`);
    try {
      const onProgress = (message: string): void => view.report({ phase: message, fraction: null, message: '' });
      paths.push(await explained(() => ensureTool(name, { cacheDir, signal, onProgress })));
    } finally {
      view.stop();
    }
  }
  return paths;
}

async function explained<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof PackagesMissing || error instanceof ToolMissing) {
      throw new CliError(error.message, undefined, { cause: error });
    }
    throw error;
  }
}
