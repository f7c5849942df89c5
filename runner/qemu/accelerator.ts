import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { release } from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import type { QemuBinary } from './binary.ts';
import { forAccelerator } from './machine-user.ts';
import type { MachineUser } from './rights.ts';
import { bootsKernel, runsFirmware } from './tiny-guest.ts';

/**
 * Whether guests really run under KVM here. That `/dev/kvm` exists and answers proves nothing: on some hosts a guest's kernel
 * crawls or dies under it. So a tiny guest is booted, with a deadline.
 */
export interface AcceleratorChoice {
  accelerator: 'kvm' | 'tcg';
  /** Why, for people. */
  reason: string;
}

export interface AcceleratorQuestion {
  wanted: 'auto' | 'kvm' | 'tcg';
  qemu: QemuBinary;
  /** The kernel that will run; without one only the processor's first instructions are tried. */
  kernelPath: string | null;
  /** Who guests run as, who may not be let into KVM; the runner's own by default. */
  user?: MachineUser | null;
  cacheDir: string;
  signal: AbortSignal;
}

const Choice = z.object({ accelerator: z.enum(['kvm', 'tcg']), reason: z.string() });

/** A firmware of seven bytes is done in 0.1 s; a kernel is up in a second where KVM works. */
const FIRMWARE_DEADLINE_MS = 10_000;
const KERNEL_DEADLINE_MS = 15_000;

/** That KVM does not work may have been a host too busy to boot a guest in time, or is mended since. */
const NO_KVM_MS = 24 * 3_600_000;

/**
 * Found out once per QEMU, kernel and host, then remembered: that KVM works for ever, that it does not for a day.
 * A wish other than `auto` is followed without a test.
 */
export async function chooseAccelerator(question: AcceleratorQuestion): Promise<AcceleratorChoice> {
  const { wanted } = question;
  if (wanted !== 'auto') return { accelerator: wanted, reason: `GYMBUS_ACCEL=${wanted}` };
  const file = path.join(question.cacheDir, 'accelerator', `${await hostKey(question)}.json`);
  // A file that is not whole (a power failure, a full disk) is as good as none.
  const known = await Promise.all([readFile(file, 'utf8'), stat(file)])
    .then(([text, { mtimeMs }]) => ({ ...Choice.parse(JSON.parse(text)), ageMs: Date.now() - mtimeMs }))
    .catch(() => null);
  if (known && (known.accelerator === 'kvm' || known.ageMs < NO_KVM_MS)) {
    return { accelerator: known.accelerator, reason: known.reason };
  }
  const choice = await probe(question);
  // What cannot be remembered is found out again next time.
  await remember(file, choice).catch(() => undefined);
  return choice;
}

async function remember(file: string, choice: AcceleratorChoice): Promise<void> {
  const draft = `${file}.${process.pid}`;
  try {
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(draft, JSON.stringify(choice));
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
}

/** Boots the tiny guests now, whatever was found out before. */
export async function probe(question: Omit<AcceleratorQuestion, 'wanted' | 'cacheDir'>): Promise<AcceleratorChoice> {
  const { qemu, kernelPath, signal } = question;
  const user = await forAccelerator(question.user ?? null, 'kvm');
  const tcg = (reason: string): AcceleratorChoice => ({ accelerator: 'tcg', reason });
  const denied = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => null,
    (error: NodeJS.ErrnoException) => error.code ?? error.message,
  );
  if (denied) return tcg(`/dev/kvm cannot be opened (${denied})`);
  const firmware = await runsFirmware(qemu.path, 'kvm', FIRMWARE_DEADLINE_MS, signal, user);
  if (firmware) return tcg(`/dev/kvm is there, but no guest runs under it: ${firmware}`);
  if (!kernelPath) return { accelerator: 'kvm', reason: 'a first instruction runs under KVM (no kernel was tried)' };
  const kernel = await bootsKernel(qemu.path, 'kvm', kernelPath, KERNEL_DEADLINE_MS, signal, user);
  if (kernel) return tcg(`/dev/kvm is there and runs single instructions, but not the guest's kernel: ${kernel}`);
  return { accelerator: 'kvm', reason: "the guest's kernel boots under KVM" };
}

async function hostKey(question: AcceleratorQuestion): Promise<string> {
  const hash = createHash('sha256').update(question.qemu.digest).update(release());
  if (question.kernelPath) hash.update(await readFile(question.kernelPath));
  hash.update(/^model name.*$/m.exec(await readFile('/proc/cpuinfo', 'latin1'))?.[0] ?? '');
  const device = await access('/dev/kvm', constants.R_OK | constants.W_OK).then(
    () => 'kvm',
    () => 'none',
  );
  const user = await forAccelerator(question.user ?? null, 'kvm');
  const who = user === null ? '' : [user.uid, user.gid, ...user.groups].join();
  return hash.update(device).update(who).digest('hex').slice(0, 32);
}
