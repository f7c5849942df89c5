import type { ScreenSize } from '../../functions/guest.ts';

/** The hardware of a machine: two that differ in any of it cannot share a template. */
export interface Hardware {
  accelerator: 'kvm' | 'tcg';
  vcpus: number;
  memoryMib: number;
  screen: ScreenSize;
  /** Off only to show that the gate notices: without it clones draw the same random numbers. */
  vmGenerationId: boolean;
}

/** What belongs to one machine alone. */
export interface MachineIdentity {
  /** UUID: how a machine's process is recognised among all others. */
  uuid: string;
  /** UUID of the generation: a guest that sees it change reseeds its random numbers. */
  generation: string;
}

/** Descriptors a machine's process inherits, by number. */
export const DESCRIPTOR = {
  state: 3,
  qmp: 4,
  helper: 5,
  serial: 6,
  memory: 7,
  disk: 8,
  diskToRead: 9,
  base: 10,
  agent: 11,
  network: 12,
} as const;

const DISK_SET = 1;
const BASE_SET = 2;

/** The helper's port, by which QEMU names it when the guest opens or closes it. */
export const HELPER_PORT = 'helper-port';

/** How a machine comes to life. */
export type Start =
  | { kind: 'boot'; kernelPath: string; initrdPath: string; cmdline: string }
  /**
   * From a template's device state, which it reads from the inherited descriptor; its memory is a private view of the template's.
   * `overlayOf`: the raw disk under its own, where that is a qcow2 overlay; null where it is raw itself.
   */
  | { kind: 'clone'; overlayOf: string | null };

/** The translation buffer fills as it is used; a small one thrashes (first command 2.3 s at 8 MiB, 0.3 s at 128). */
const TCG_BUFFER_MIB = 128;

/**
 * AVX is dear to emulate, and a guest that finds it copies and compares with it: without it an episode took 916 ms of processor time
 * against 977 (medians of four and eight rounds of eight episodes).
 */
const TCG_PROCESSOR = 'max,-avx,-avx2';

/** Everything a template depends on, in QEMU's words; equal for a boot and for its clones. */
export function hardwareArguments(hardware: Hardware): string[] {
  const { accelerator, vcpus, memoryMib, screen } = hardware;
  return [
    '-nodefaults',
    '-no-user-config',
    ...['-accel', accelerator === 'tcg' ? `tcg,tb-size=${TCG_BUFFER_MIB}` : 'kvm'],
    ...['-cpu', accelerator === 'tcg' ? TCG_PROCESSOR : 'host'],
    ...['-smp', String(vcpus)],
    ...['-m', `${memoryMib}M`],
    ...['-machine', 'q35,memory-backend=ram,vmport=off,i8042=off,sata=off,smbus=off,dump-guest-core=off'],
    ...['-display', 'none', '-vga', 'none'],
    ...['-device', `VGA,edid=on,xres=${screen.width},yres=${screen.height},vgamem_mb=${videoMemoryMib(screen)}`],
    ...['-device', 'virtio-tablet-pci', '-device', 'virtio-keyboard-pci'],
    ...['-device', 'virtio-rng-pci', '-device', 'pvpanic-pci'],
    ...['-device', 'virtio-blk-pci,drive=disk'],
    ...['-netdev', 'user,id=net,restrict=on', '-device', 'virtio-net-pci,netdev=net,romfile='],
    ...['-device', 'virtio-serial-pci'],
    ...['-device', 'virtserialport,chardev=agent,name=org.qemu.guest_agent.0'],
    ...['-device', `virtserialport,chardev=helper,name=gymbus.0,id=${HELPER_PORT}`],
    ...['-device', 'virtserialport,chardev=network,name=gymbus.network'],
    ...['-serial', 'chardev:serial'],
  ];
}

/** A machine's whole command line, QEMU's own name left out. */
export function machineArguments(name: string, hardware: Hardware, identity: MachineIdentity, start: Start): string[] {
  const share = start.kind === 'boot' ? 'on' : 'off';
  return [
    ...['-name', name, '-uuid', identity.uuid],
    // No new processes, no privileges, no scheduling games, whatever a guest makes QEMU do.
    ...['-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny'],
    // A clone has no kernel to boot again: a reboot ends it. After a panic or a shutdown it stands still, to be looked at.
    ...['-no-reboot', '-action', 'panic=pause,shutdown=pause'],
    ...[
      '-object',
      `memory-backend-file,id=ram,size=${hardware.memoryMib}M,mem-path=/proc/self/fd/${DESCRIPTOR.memory},share=${share}`,
    ],
    // QEMU opens a disk for reading, and then for writing: it takes from the set what is open as it asks for. Nobody else has this disk,
    // and its locks would be between the two.
    ...[DESCRIPTOR.disk, DESCRIPTOR.diskToRead].flatMap((fd) => ['-add-fd', `fd=${fd},set=${DISK_SET}`]),
    ...(start.kind === 'clone' && start.overlayOf !== null ? overlayArguments() : driveArguments('format=raw')),
    ...['-chardev', `socket,id=qmp,fd=${DESCRIPTOR.qmp}`, '-mon', 'chardev=qmp,mode=control'],
    ...['-chardev', `socket,id=helper,fd=${DESCRIPTOR.helper}`],
    ...['-chardev', `socket,id=serial,fd=${DESCRIPTOR.serial}`],
    ...['-chardev', `socket,id=agent,fd=${DESCRIPTOR.agent}`],
    ...['-chardev', `socket,id=network,fd=${DESCRIPTOR.network}`],
    ...hardwareArguments(hardware),
    ...(hardware.vmGenerationId ? ['-device', `vmgenid,guid=${identity.generation}`] : []),
    ...(start.kind === 'boot'
      ? ['-kernel', start.kernelPath, '-initrd', start.initrdPath, '-append', start.cmdline]
      : ['-S', '-incoming', 'defer']),
  ];
}

function driveArguments(format: string): string[] {
  return [
    '-drive',
    `file=/dev/fdset/${DISK_SET},if=none,id=disk,${format},file.locking=off,cache=unsafe,discard=unmap`,
  ];
}

/** The file under it is the inherited one, whatever the overlay itself says: QEMU's user need not reach that. */
function overlayArguments(): string[] {
  const base = `backing.driver=raw,backing.file.driver=file,backing.file.filename=/dev/fdset/${BASE_SET},backing.file.locking=off`;
  return ['-add-fd', `fd=${DESCRIPTOR.base},set=${BASE_SET}`, ...driveArguments(`format=qcow2,${base}`)];
}

/**
 * The smallest power of two that holds the screen twice at 32 bits a pixel: the guest's driver offers no mode that takes more than half.
 * What is not drawn on costs a clone nothing.
 */
export function videoMemoryMib(screen: ScreenSize): number {
  const mib = (2 * screen.width * screen.height * 4) / 2 ** 20;
  return Math.max(4, 2 ** Math.ceil(Math.log2(mib)));
}
