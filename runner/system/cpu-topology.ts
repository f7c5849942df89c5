import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';

/** The processors of a host that this process may use, by the memory they are near to. */
export interface CpuTopology {
  /** Processor numbers of each NUMA node, ascending; a host without nodes has one. */
  nodes: number[][];
}

const NODES = '/sys/devices/system/node';

/** @throws where the kernel does not say which processors this process may use */
export async function cpuTopology(): Promise<CpuTopology> {
  const status = await readFile('/proc/self/status', 'latin1');
  const allowed = new Set(parseCpuList(/^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? ''));
  if (allowed.size === 0) throw new Error('/proc/self/status has no Cpus_allowed_list');
  const names = (await readdir(NODES).catch(() => [])).filter((name) => /^node\d+$/.test(name));
  const lists = await Promise.all(names.map((name) => readFile(path.join(NODES, name, 'cpulist'), 'latin1')));
  const nodes = lists
    .map((list) => parseCpuList(list.trim()).filter((cpu) => allowed.has(cpu)))
    .filter((cpus) => cpus.length > 0);
  return { nodes: nodes.length > 0 ? nodes : [[...allowed].sort((a, b) => a - b)] };
}

/** Reads the kernel's lists of processors or nodes, e.g. `0-3,8`. @throws of what is no such list */
export function parseCpuList(text: string): number[] {
  if (text === '') return [];
  return text.split(',').flatMap((part) => {
    const [, first, last] = /^(\d+)(?:-(\d+))?$/.exec(part) ?? [];
    if (first === undefined) throw new Error(`${JSON.stringify(text)} is no list of processors`);
    const from = Number(first);
    return Array.from({ length: Number(last ?? first) - from + 1 }, (_, n) => from + n);
  });
}
