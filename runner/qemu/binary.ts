import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { execa } from 'execa';
import { findTool } from '../system/find-tool.ts';

export interface QemuBinary {
  path: string;
  /** As it names itself, e.g. `7.2.22`. */
  version: string;
  /** sha256 of the program: two builds of one version may lay out device state differently. */
  digest: string;
}

/** No QEMU is installed, or it does not run; the message says what to do. */
export class QemuMissing extends Error {
  override readonly name = 'QemuMissing';
}

const PROGRAM = 'qemu-system-x86_64';

/** @throws QemuMissing */
export async function findQemu(): Promise<QemuBinary> {
  const file = await findTool(PROGRAM);
  if (!file) {
    throw new QemuMissing(`${PROGRAM} is not installed: apt-get install --no-install-recommends qemu-system-x86`);
  }
  try {
    const [{ stdout }, bytes] = await Promise.all([execa(file, ['--version'], { timeout: 20_000 }), readFile(file)]);
    const version = /version (\d+[\d.]*)/.exec(stdout)?.[1] ?? stdout.split('\n')[0] ?? '';
    return { path: file, version, digest: createHash('sha256').update(bytes).digest('hex') };
  } catch (error) {
    throw new QemuMissing(`${file} does not run: ${(error as Error).message}`, { cause: error });
  }
}
