import type { CpuTopology } from '../system/cpu-topology.ts';

/** Processors that some replicas share and no other replica uses; of one NUMA node, so that their memory is near. */
export interface CpuGroup {
  readonly index: number;
  readonly cpus: readonly number[];
}

/**
 * Cuts a host's processors into groups; none crosses a NUMA node. What is left of a node goes to its last group.
 * @param size processors in each; null for whole nodes
 */
export function planGroups({ nodes }: CpuTopology, size: number | null): CpuGroup[] {
  const parts = nodes.flatMap((cpus) => {
    const count = size === null ? 1 : Math.max(1, Math.floor(cpus.length / size));
    const each = size === null ? cpus.length : Math.min(size, cpus.length);
    return Array.from({ length: count }, (_, n) => cpus.slice(n * each, n === count - 1 ? undefined : (n + 1) * each));
  });
  return parts.map((cpus, index) => ({ index, cpus }));
}

/** The group with the fewest, the first of several. @param taken how many each has, by index */
export function emptiest(groups: readonly CpuGroup[], taken: (group: CpuGroup) => number): CpuGroup {
  const [first, ...rest] = groups;
  if (!first) throw new Error('a host has at least one group of processors');
  return rest.reduce((best, group) => (taken(group) < taken(best) ? group : best), first);
}
