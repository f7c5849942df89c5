import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type Hardware, hardwareArguments } from '../qemu/arguments.ts';
import type { Engine } from './engine.ts';
import type { ImageFiles } from './image-files.ts';

/** Raised when the way templates are made or stored changes. */
const TEMPLATE_FORMAT = 1;

/** The machine an image runs on. */
export function imageHardware(image: ImageFiles, accelerator: 'kvm' | 'tcg'): Hardware {
  return {
    accelerator,
    vcpus: image.manifest.vcpus,
    memoryMib: image.manifest.memory_mib,
    screen: image.manifest.resolution,
    vmGenerationId: true,
  };
}

/**
 * Names a template by everything that must match for its device state to load and its guest to run on:
 * image, QEMU build, machine, devices, memory, screen, accelerator and, under KVM, the processor. By QEMU's group, too: no other
 * may open the memory file.
 * @returns 32 hex digits
 */
export async function templateKey(
  image: ImageFiles,
  engine: Pick<Engine, 'qemu' | 'isolation'>,
  hardware: Hardware,
): Promise<string> {
  const parts = {
    format: TEMPLATE_FORMAT,
    image: image.digest,
    cmdline: image.manifest.cmdline,
    readiness: image.manifest.readiness,
    warmup: image.manifest.warmup,
    qemu: engine.qemu.digest,
    arguments: hardwareArguments(hardware),
    vm_generation_id: hardware.vmGenerationId,
    group: engine.isolation.user?.gid ?? null,
    processor: hardware.accelerator === 'kvm' ? await processor() : null,
  };
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

/** Model, stepping, microcode and flags of the host's processor: under KVM the guest has seen them. */
async function processor(): Promise<string> {
  const first = (await readFile('/proc/cpuinfo', 'utf8')).split('\n\n')[0] ?? '';
  return first
    .split('\n')
    .filter((line) => /^(vendor_id|cpu family|model|stepping|microcode|flags)/.test(line))
    .join('\n');
}
