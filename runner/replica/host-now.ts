import { readFileSync, statfsSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { parseCpuList } from '../system/cpu-topology.ts';

/** Where the kernel tells what it knows; a test puts other folders in their place. */
export interface KernelFolders {
  proc: string;
  sys: string;
}

export const KERNEL: KernelFolders = { proc: '/proc', sys: '/sys' };

/** Pressure stall information of memory: percent of the last ten seconds in which some, or all, tasks waited for memory. */
export interface Pressure {
  some: number;
  full: number;
}

/** A host at this moment. All of it is read synchronously, some 50 us, so that a decision and what it rests on are one. */
export interface HostNow {
  /** What could be had without swapping, page cache included. */
  memoryBytes: number;
  cpus: number;
  /** Inside the storage area, or under it, whichever is less. */
  diskBytes: number;
  /** Numbers of the devices those two are on: who shares one shares its room. */
  devices: readonly number[];
  /** Null where the kernel gives no account of it. */
  pressure: Pressure | null;
}

/** @throws where the kernel does not say what memory is available (before Linux 3.14), or the area is gone */
export function hostNow(area: string, kernel: KernelFolders = KERNEL): HostNow {
  const folders = [area, path.dirname(area)];
  return {
    memoryBytes: availableMemory(kernel),
    cpus: availableParallelism(),
    diskBytes: Math.min(...folders.map(freeBytes)),
    devices: [...new Set(folders.map((folder) => statSync(folder).dev))],
    pressure: memoryPressure(kernel),
  };
}

/** @throws where the kernel does not say */
export function availableMemory({ proc }: Pick<KernelFolders, 'proc'> = KERNEL): number {
  const line = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync(path.join(proc, 'meminfo'), 'latin1'));
  if (!line) throw new Error(`${proc}/meminfo has no MemAvailable`);
  return Number(line[1]) * 1_024;
}

/** Null where the kernel was built or started without it (`psi=0`): then it is not used. */
function memoryPressure({ proc }: Pick<KernelFolders, 'proc'> = KERNEL): Pressure | null {
  try {
    const text = readFileSync(path.join(proc, 'pressure/memory'), 'latin1');
    const of = (kind: string): number => Number(new RegExp(`^${kind} avg10=([\\d.]+)`, 'm').exec(text)?.[1]);
    const pressure = { some: of('some'), full: of('full') };
    return Number.isNaN(pressure.some + pressure.full) ? null : pressure;
  } catch {
    return null;
  }
}

/** Memory nodes of this host: 1 where the kernel does not say. */
export function numaNodes({ sys }: Pick<KernelFolders, 'sys'> = KERNEL): number {
  try {
    return parseCpuList(readFileSync(path.join(sys, 'devices/system/node/has_memory'), 'latin1').trim()).length;
  } catch {
    return 1;
  }
}

/** How many files this process may have open, or Infinity. */
export function openFilesLimit({ proc }: Pick<KernelFolders, 'proc'> = KERNEL): number {
  try {
    const limits = readFileSync(path.join(proc, 'self/limits'), 'latin1');
    return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Milliseconds since the host's boot, the same in all of its processes. */
export function bootMs(): number {
  return Number(process.hrtime.bigint() / 1_000_000n);
}

function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}
