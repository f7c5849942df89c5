import { randomUUID } from 'node:crypto';
import { chmod, chown, copyFile, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { launchOnce } from './launch-program.ts';
import { type MachineUser, OWN_RIGHTS } from './rights.ts';
import { removeRunFolder } from './run-folder.ts';

/** Two guests small enough to write down, for finding out whether guests run here at all. */

/** Printed by each when it is up. */
const UP = 'gymbus: up';
/** What ends a guest through QEMU's `isa-debug-exit`: the value is shifted left and made odd. */
const EXIT_VALUE = 0x21;
const EXIT_CODE = (EXIT_VALUE << 1) | 1;

/** Where a processor begins after power-on, counted from the end of the firmware. */
const RESET_VECTOR = 16;
const FIRMWARE_BYTES = 64 * 1024;

/**
 * Runs a firmware of seven bytes that ends the machine through a port.
 * @returns null when it did, else why not
 */
export async function runsFirmware(
  qemuPath: string,
  accelerator: 'kvm' | 'tcg',
  deadlineMs: number,
  signal: AbortSignal,
  user: MachineUser | null = null,
): Promise<string | null> {
  const firmware = Buffer.alloc(FIRMWARE_BYTES, 0xf4);
  // mov dx, 0xf4; mov al, EXIT_VALUE; out dx, al; hlt
  Buffer.from([0xba, 0xf4, 0x00, 0xb0, EXIT_VALUE, 0xee, 0xf4]).copy(firmware, FIRMWARE_BYTES - RESET_VECTOR);
  return inFolder({ firmware }, user, async (folder) => {
    const args = ['-bios', `${folder}/firmware`, '-device', 'isa-debug-exit,iobase=0xf4,iosize=0x01'];
    const { exitCode, failure } = await run(qemuPath, accelerator, args, deadlineMs, signal, user);
    return exitCode === EXIT_CODE ? null : failure;
  });
}

/**
 * Boots a kernel with an init of a hundred bytes that says so on the console.
 * @returns null when it came up, else why not
 */
export async function bootsKernel(
  qemuPath: string,
  accelerator: 'kvm' | 'tcg',
  kernelPath: string,
  deadlineMs: number,
  signal: AbortSignal,
  user: MachineUser | null = null,
): Promise<string | null> {
  const copied: Record<string, string> = user ? { kernel: kernelPath } : {};
  return inFolder({ initrd: cpio('init', tinyInit()), ...copied }, user, async (folder) => {
    const cmdline = 'console=ttyS0 quiet panic=-1 reboot=t mitigations=off';
    const kernel = user ? `${folder}/kernel` : kernelPath;
    const args = ['-kernel', kernel, '-initrd', `${folder}/initrd`, '-append', cmdline, '-serial', 'stdio'];
    const { stdout, failure } = await run(qemuPath, accelerator, args, deadlineMs, signal, user);
    return stdout.includes(UP) ? null : failure;
  });
}

async function run(
  qemuPath: string,
  accelerator: 'kvm' | 'tcg',
  args: string[],
  deadlineMs: number,
  signal: AbortSignal,
  user: MachineUser | null,
): Promise<{ exitCode: number | undefined; stdout: string; failure: string }> {
  const machine = ['-machine', 'q35', '-m', '256M', '-display', 'none', '-vga', 'none', '-no-reboot'];
  const cpu = ['-accel', accelerator, '-cpu', accelerator === 'kvm' ? 'host' : 'max', '-smp', '1'];
  const uuid = ['-uuid', randomUUID()];
  const qemu = ['-nodefaults', '-no-user-config', ...uuid, ...machine, ...cpu, ...args];
  // Where guests do not run it may never end by itself.
  const [launcher, ...launching] = launchOnce([qemuPath, ...qemu], { ...OWN_RIGHTS, user });
  const result = await execa(launcher, launching, {
    reject: false,
    timeout: deadlineMs,
    killSignal: 'SIGKILL',
    cancelSignal: signal,
  });
  signal.throwIfAborted();
  const said = result.stderr.trim().split('\n').at(-1);
  const failure = result.timedOut
    ? `it did not come up within ${deadlineMs} ms`
    : said || `qemu ended with ${result.signal ?? result.exitCode}`;
  return { exitCode: result.exitCode, stdout: result.stdout, failure };
}

/** An ELF program for x86-64: writes `UP` to the console, then asks the kernel to restart, which ends the machine. */
function tinyInit(): Buffer {
  const base = 0x400000;
  const headerBytes = 64 + 56;
  const message = Buffer.from(`${UP}\n`);
  const code = Buffer.from([
    ...[0xb8, 0x01, 0, 0, 0, 0xbf, 0x01, 0, 0, 0], // mov eax, write; mov edi, 1
    ...[0xbe, 0, 0, 0, 0, 0xba, message.length, 0, 0, 0, 0x0f, 0x05], // mov esi, message; mov edx, length; syscall
    ...[0xb8, 0xa9, 0, 0, 0, 0xbf, 0xad, 0xde, 0xe1, 0xfe], // mov eax, reboot; mov edi, magic
    ...[0xbe, 0x69, 0x19, 0x12, 0x28, 0xba, 0x67, 0x45, 0x23, 0x01, 0x0f, 0x05], // mov esi, magic 2; mov edx, restart; syscall
    ...[0xeb, 0xfe], // and wait
  ]);
  code.writeUInt32LE(base + headerBytes + code.length, 11);
  const size = BigInt(headerBytes + code.length + message.length);
  const header = Buffer.alloc(headerBytes);
  Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]).copy(header);
  header.writeUInt16LE(2, 16); // executable
  header.writeUInt16LE(62, 18); // x86-64
  header.writeUInt32LE(1, 20);
  header.writeBigUInt64LE(BigInt(base + headerBytes), 24); // entry
  header.writeBigUInt64LE(64n, 32); // program headers
  header.writeUInt16LE(64, 52);
  header.writeUInt16LE(56, 54);
  header.writeUInt16LE(1, 56);
  header.writeUInt32LE(1, 64); // load
  header.writeUInt32LE(5, 68); // read, execute
  header.writeBigUInt64LE(BigInt(base), 80);
  header.writeBigUInt64LE(BigInt(base), 88);
  header.writeBigUInt64LE(size, 96);
  header.writeBigUInt64LE(size, 104);
  header.writeBigUInt64LE(0x1000n, 112);
  return Buffer.concat([header, code, message]);
}

/** An initial file system with one program in it (cpio, "newc"). */
function cpio(name: string, data: Buffer): Buffer {
  return Buffer.concat([cpioEntry(name, 0o100755, data), cpioEntry('TRAILER!!!', 0, Buffer.alloc(0))]);
}

function cpioEntry(name: string, mode: number, data: Buffer): Buffer {
  const fields = [1, mode, 0, 0, 1, 0, data.length, 0, 0, 0, 0, name.length + 1, 0];
  const head = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${name}\0`;
  const padded = (part: Buffer): Buffer => Buffer.concat([part, Buffer.alloc((4 - (part.length % 4)) % 4)]);
  return Buffer.concat([padded(Buffer.from(head)), padded(data)]);
}

/** @param files by name: their content, or the path of a file to be copied, for the image's own may be for the runner alone */
async function inFolder<T>(
  files: Record<string, Buffer | string>,
  user: MachineUser | null,
  use: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = await mkdtemp(path.join(tmpdir(), 'gymbus-probe-'));
  try {
    for (const [name, data] of Object.entries(files)) {
      const file = path.join(folder, name);
      // Nobody else may put anything into the folder yet: a name that is followed here may not become a link.
      await (typeof data === 'string' ? copyFile(data, file) : writeFile(file, data));
      // Whatever the umask took: QEMU's user is another.
      await chmod(file, 0o444);
    }
    if (user) await chown(folder, user.uid, user.gid);
    return await use(folder);
  } finally {
    await removeRunFolder(folder);
  }
}
