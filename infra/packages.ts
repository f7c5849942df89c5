import { execa } from 'execa';
import { findTool } from '../runner/system/find-tool.ts';

/** A Debian package and the tools by which its presence is told. */
export interface PackageRequirement {
  package: string;
  /** Found on PATH or in the administrators' folders, they say that it is there. */
  tools: readonly string[];
  /** For a package that brings no tool. */
  present?: () => Promise<boolean>;
}

export interface PackageOptions {
  onProgress?: (message: string) => void;
  signal?: AbortSignal | undefined;
}

/** Packages are missing and cannot be installed by us; the message is the command that does. */
export class PackagesMissing extends Error {
  override readonly name = 'PackagesMissing';
}

/** A full set over a slow line. */
const INSTALL_MS = 20 * 60_000;

/**
 * Installs what is missing with apt, as root or through sudo where it asks for no password.
 * @returns the packages that were installed
 * @throws PackagesMissing with the exact command, where it may not be done by us or fails
 */
export async function ensurePackages(
  requirements: readonly PackageRequirement[],
  options: PackageOptions = {},
): Promise<string[]> {
  const missing = await missingPackages(requirements);
  if (missing.length === 0) return [];
  const args = ['install', '--yes', '--no-install-recommends', ...missing];
  const asRoot = await rootPrefix();
  const command = `${process.getuid?.() === 0 ? '' : 'sudo '}apt-get update && ${process.getuid?.() === 0 ? '' : 'sudo '}apt-get ${args.join(' ')}`;
  const why = await whyNot(asRoot);
  if (why !== null || asRoot === null) {
    throw new PackagesMissing(`missing: ${missing.join(', ')}. ${why ?? ''} Install them with:\n  ${command}`);
  }
  options.onProgress?.(`installing ${missing.join(', ')} with apt-get`);
  // Lists may be old or absent: try first, for they usually are not.
  let result = await apt(asRoot, args, options);
  if (result.failed) {
    options.onProgress?.('updating package lists');
    await apt(asRoot, ['update'], options);
    result = await apt(asRoot, args, options);
  }
  options.signal?.throwIfAborted();
  const stillMissing = await missingPackages(requirements);
  if (result.failed || stillMissing.length > 0) {
    const tail = result.all.split('\n').slice(-10).join('\n');
    throw new PackagesMissing(
      `apt-get did not install ${missing.join(', ')}:\n${tail}\nInstall them with:\n  ${command}`,
      {
        cause: result,
      },
    );
  }
  options.onProgress?.(`installed ${missing.join(', ')}`);
  return missing;
}

/** Packages of which a tool is not there, in the order asked for. */
export async function missingPackages(requirements: readonly PackageRequirement[]): Promise<string[]> {
  const checked = await Promise.all(
    requirements.map(async (requirement) => {
      const found = await Promise.all(requirement.tools.map(findTool));
      const there = found.every((tool) => tool !== null) && ((await requirement.present?.()) ?? true);
      return there ? null : requirement.package;
    }),
  );
  return [...new Set(checked.filter((name) => name !== null))];
}

/** What goes before a command so that it runs as root; null when we may not. */
async function rootPrefix(): Promise<string[] | null> {
  if (process.getuid?.() === 0) return [];
  const sudo = await findTool('sudo');
  if (sudo === null) return null;
  const result = await execa(sudo, ['--non-interactive', 'true'], { reject: false, timeout: 10_000 });
  return result.failed ? null : [sudo, '--non-interactive'];
}

async function whyNot(asRoot: string[] | null): Promise<string | null> {
  if ((await findTool('apt-get')) === null) return 'There is no apt-get here: install their counterparts by hand.';
  return asRoot === null ? 'This needs root, and sudo is not there or asks for a password.' : null;
}

function apt(asRoot: string[], args: string[], { signal }: PackageOptions) {
  const [file = 'apt-get', ...rest] = [...asRoot, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...args];
  return execa(file, rest, {
    stdin: 'ignore',
    all: true,
    reject: false,
    timeout: INSTALL_MS,
    ...(signal === undefined ? {} : { cancelSignal: signal }),
  });
}
