import { execa } from 'execa';
import { imageRequirements } from '../../images/requirements.ts';
import { ensurePackages, type PackageRequirement } from '../../infra/packages.ts';
import { ensureTool, type ToolName } from '../../infra/tools.ts';
import type { Config } from '../host/config.ts';
import { chooseAccelerator } from '../qemu/accelerator.ts';
import { findQemu } from '../qemu/binary.ts';
import { chooseMachineUser } from '../qemu/machine-user.ts';
import { buildImages } from './images.ts';
import { progressView } from './progress.ts';
import { refuseToBuild } from './rights.ts';

/** What the engine runs. */
const ENGINE: readonly PackageRequirement[] = [
  { package: 'qemu-system-x86', tools: ['qemu-system-x86_64'] },
  { package: 'xfsprogs', tools: ['mkfs.xfs'] },
  { package: 'util-linux', tools: ['setpriv', 'flock', 'prlimit'] },
  { package: 'mount', tools: ['mount', 'umount'] },
  { package: 'perl-base', tools: ['perl'] },
  { package: 'passwd', tools: ['useradd'] },
];

const IMAGES: readonly PackageRequirement[] = imageRequirements.map(({ tool, aptPackage }) => ({
  package: aptPackage,
  tools: [tool],
}));

/** What a runner's host and an image's build need. */
export const HOST_PACKAGES: readonly PackageRequirement[] = [...ENGINE, ...IMAGES];

/** Debian packages for engine and image builder, installed where missing; says what it does. @throws PackagesMissing */
export async function ensureHostPackages(signal: AbortSignal, more: readonly PackageRequirement[] = []): Promise<void> {
  await ensurePackages([...HOST_PACKAGES, ...more], {
    signal,
    onProgress: (message) => console.error(`packages: ${message}`),
  });
}

/** Servers and tools of the local stack, built where missing. @returns their paths @throws ToolMissing */
export async function ensureTools(
  names: readonly ToolName[],
  cacheDir: string,
  signal: AbortSignal,
): Promise<string[]> {
  const paths: string[] = [];
  for (const name of names) {
    const view = progressView(`tool ${name}`);
    try {
      const onProgress = (message: string, phase: string): void => view.report({ phase, fraction: null, message });
      paths.push(await ensureTool(name, { cacheDir, signal, onProgress }));
      view.done();
    } finally {
      view.stop();
    }
  }
  return paths;
}

const TEST_IMAGE = 'debian-desktop';

/** Everything the tests need. @returns whether guests run under KVM here */
export async function installForTests(
  { cacheDir, qemuUser }: Pick<Config, 'cacheDir' | 'qemuUser'>,
  signal: AbortSignal,
): Promise<{ kvm: boolean }> {
  await refuseToBuild([TEST_IMAGE], cacheDir);
  await ensureHostPackages(signal, TEST_PACKAGES);
  await ensureTools(['nats-server', 'nats', 'versitygw'], cacheDir, signal);
  const [image] = await buildImages([TEST_IMAGE], cacheDir, signal);
  const { user } = await chooseMachineUser(qemuUser, { make: false });
  const { accelerator, reason } = await chooseAccelerator({
    ...{ wanted: 'auto', qemu: await findQemu(), kernelPath: image?.kernelPath ?? null, user, cacheDir, signal },
  });
  console.error(`accelerator: ${accelerator}: ${reason}`);
  return { kvm: accelerator === 'kvm' };
}

/** Certificates of test servers, and the environment that foreign clients in Python live in. */
const TEST_PACKAGES: readonly PackageRequirement[] = [
  { package: 'openssl', tools: ['openssl'] },
  { package: 'qemu-utils', tools: ['qemu-img'] },
  {
    package: 'python3-venv',
    tools: ['python3'],
    present: async () => {
      const { failed } = await execa('python3', ['-c', 'import ensurepip, venv'], { reject: false, timeout: 30_000 });
      return !failed;
    },
  },
];
