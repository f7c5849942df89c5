import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import type { StorageArea } from '../storage/area.ts';

/** What a host has to give, as it is now. */
export interface HostRoom {
  /** What could be had without swapping, page cache included. */
  memoryBytes: number;
  cpus: number;
  /** Inside the storage area, or under it, whichever is less. */
  diskBytes: number;
  accelerator: 'kvm' | 'tcg';
}

/** What a replica of an image takes. */
export interface ReplicaCost {
  hotBytes: number;
  /** At its worst: all of the guest's memory touched, the translation buffer full. */
  actingBytes: number;
  diskBytes: number;
}

export interface Capacity {
  /** Replicas that may belong to an attempt at once. */
  acting: number;
  /** Hot replicas kept. */
  ready: number;
  /** What keeps it from being more: `memory`, `cpu`, `disk` or `setting`. */
  bound: string;
}

export interface CapacitySettings {
  acting?: number | undefined;
  ready?: number | undefined;
  diskFloorBytes: number;
}

const mib = 2 ** 20;
/** For everything else on the host; below this it would swap or kill. */
export const MEMORY_FLOOR_BYTES = 1024 * mib;
/**
 * Episodes wait between actions, so a processor carries more than one. Under software emulation, two cores: two each left a quarter of
 * them idle (71 episodes a minute), three a twelfth (86), four and more were no faster (81 to 92) and each episode later.
 */
const ACTING_PER_CPU = { tcg: 3, kvm: 6 } as const;
/** Private to a hot replica: QEMU 15 MiB, translated code and dirtied guest memory the rest. */
const HOT_BYTES = { tcg: 96 * mib, kvm: 64 * mib } as const;
/** QEMU itself and, under emulation, translated code. */
const ENGINE_BYTES = { tcg: 192 * mib, kvm: 32 * mib } as const;
/** An episode writes some megabytes; one that fills its disk meets the floor. */
const EPISODE_DISK_BYTES = 256 * mib;

export function replicaCost(accelerator: 'kvm' | 'tcg', guestMemoryMib: number): ReplicaCost {
  return {
    hotBytes: HOT_BYTES[accelerator],
    actingBytes: ENGINE_BYTES[accelerator] + guestMemoryMib * mib,
    diskBytes: EPISODE_DISK_BYTES,
  };
}

/**
 * How many replicas a host may carry: the least that memory, processors and disk allow, at least one, so that a small host still
 * serves. A setting overrides, and is then what binds.
 */
export function planCapacity(room: HostRoom, cost: ReplicaCost, settings: CapacitySettings): Capacity {
  const memory = Math.max(0, room.memoryBytes - MEMORY_FLOOR_BYTES);
  const limits = {
    // For each that acts another is hot, to take its place.
    memory: Math.floor(memory / (cost.actingBytes + cost.hotBytes)),
    cpu: room.cpus * ACTING_PER_CPU[room.accelerator],
    disk: Math.floor(Math.max(0, room.diskBytes - settings.diskFloorBytes) / cost.diskBytes),
  };
  const [bound, least] = Object.entries(limits).reduce((one, other) => (other[1] < one[1] ? other : one));
  const acting = settings.acting ?? Math.max(1, least);
  return {
    acting,
    ready: settings.ready ?? acting,
    bound: settings.acting === undefined ? bound : 'setting',
  };
}

export async function hostRoom(area: StorageArea, accelerator: 'kvm' | 'tcg'): Promise<HostRoom> {
  return {
    memoryBytes: await availableMemory(),
    cpus: availableParallelism(),
    diskBytes: await area.freeBytes(),
    accelerator,
  };
}

/** @throws where the kernel does not say (before Linux 3.14) */
export async function availableMemory(): Promise<number> {
  const line = /^MemAvailable:\s+(\d+) kB$/m.exec(await readFile('/proc/meminfo', 'latin1'));
  if (!line) throw new Error('/proc/meminfo has no MemAvailable');
  return Number(line[1]) * 1_024;
}

/** Bytes in GiB, for people. */
export function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}
