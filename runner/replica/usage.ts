import { readdirSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Machine } from '../qemu/machine.ts';
import { readKernelFile, readStat } from '../qemu/proc-stat.ts';
import { KERNEL, type KernelFolders } from './host-now.ts';

/** What a machine had used by a moment. */
export interface Usage {
  atMs: number;
  /** Processor time of QEMU, all of its threads. */
  cpuMs: number;
  /** Waited for a turn on a processor: what it would have run, were there enough of them. 0 where the kernel does not account for it. */
  waitedMs: number;
}

/** Of the kernel's clock, which accounts for processes. */
const TICK_MS = 10;
/** QEMU answers within a millisecond; one that does not is about to be killed anyway. */
const BLOCKS_DEADLINE_MS = 500;
const Blocks = z.array(z.object({ stats: z.object({ wr_bytes: z.number() }) }));

/**
 * Memory that is a process's own: touched anonymous pages, swapped ones, and its page tables. The kernel keeps these counts; they cost
 * some 20 us to read, where `smaps_rollup` walks every page.
 * @returns bytes; null when there is no such process
 */
export function ownMemory(pid: number): number | null {
  const status = readKernelFile(`/proc/${pid}/status`);
  if (status === null) return null;
  const kib = (field: string): number =>
    Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? Number.NaN);
  const bytes = (kib('RssAnon') + kib('VmSwap') + kib('VmPTE')) * 1_024;
  return Number.isNaN(bytes) ? null : bytes;
}

/** @returns null when the machine is gone */
export async function usageOf(machine: Machine): Promise<Usage | null> {
  const load = await machine.processors.load().catch(() => null);
  const stat = readStat(`/proc/${machine.pid}`);
  if (stat === null) return null;
  const cpuMs = (Number(stat[11]) + Number(stat[12])) * TICK_MS;
  return { atMs: performance.now(), cpuMs, waitedMs: load?.waitedMs ?? 0 };
}

/** Processors used between two moments, as if it had never waited for one; null when too little time lies between them. */
export function processorsBetween(from: Usage, to: Usage): number | null {
  const ownMs = to.atMs - from.atMs - (to.waitedMs - from.waitedMs);
  return ownMs < TICK_MS ? null : (to.cpuMs - from.cpuMs) / ownMs;
}

/** What it has written to its disk since it was cloned; null when QEMU does not say. */
export async function writtenBytes(machine: Machine): Promise<number | null> {
  try {
    const blocks = await machine.qmp.execute('query-blockstats', undefined, { deadlineMs: BLOCKS_DEADLINE_MS });
    return Blocks.parse(blocks).reduce((sum, { stats }) => sum + stats.wr_bytes, 0);
  } catch {
    return null;
  }
}

/**
 * Bytes that went between memory and the processors of this host since its boot, from the kernel's resource control (resctrl, mounted at
 * `/sys/fs/resctrl`); null where the processor or the kernel does not count them, or nobody has mounted it.
 */
export function memoryTraffic({ sys }: Pick<KernelFolders, 'sys'> = KERNEL): number | null {
  const folder = path.join(sys, 'fs/resctrl/mon_data');
  try {
    const domains = readdirSync(folder).map((name) => readKernelFile(path.join(folder, name, 'mbm_total_bytes')));
    const bytes = domains.reduce((sum, text) => sum + Number(text ?? Number.NaN), 0);
    return domains.length === 0 || Number.isNaN(bytes) ? null : bytes;
  } catch {
    return null;
  }
}
