import type { CpuTopology } from '../system/cpu-topology.ts';

/** Processors that some replicas of a runner keep to, and no others of it; of one NUMA node, so that their memory is near. */
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

/** Of some replicas; asked for only where it matters. */
type Groups = () => readonly (CpuGroup | null)[];

/** The groups of one pool, and who is in them. */
export class CpuGroups {
  readonly all: readonly CpuGroup[];
  /** K: how many may act in each; null for as many as the host's plan says, wherever. */
  readonly most: number | null;
  readonly #split: boolean;

  constructor(all: readonly CpuGroup[], most: number | null) {
    this.all = all;
    this.most = most;
    this.#split = all.length > 1;
  }

  /**
   * Where the next one goes: to a group in which one may act, else to any; of several to the one with the fewest.
   * @param there groups of the replicas there are @param acting of those that act
   * @returns null where one group is the whole host: nobody has to keep to it
   */
  seat(there: Groups, acting: Groups): CpuGroup | null {
    if (!this.#split) return null;
    const beside = this.ranking(acting);
    const open = this.all.filter((group) => Number.isFinite(beside(group)));
    const groups = there();
    return emptiest(
      open.length > 0 ? open : this.all,
      ({ index }) => groups.filter((it) => it?.index === index).length,
    );
  }

  /** @returns tells of a group whether it is full while another is not; null where none can be */
  full(acting: Groups): ((group: CpuGroup | null) => boolean) | null {
    if (!this.#split || this.most === null) return null;
    const beside = this.ranking(acting);
    const isFull = (group: CpuGroup | null): boolean => beside(group) === Number.POSITIVE_INFINITY;
    return this.all.every(isFull) ? null : isFull;
  }

  /** @param acting groups of those that act @returns tells how many act in a group; Infinity where no more may */
  ranking(acting: Groups): (group: CpuGroup | null) => number {
    if (!this.#split && this.most === null) return () => 0;
    const there = new Map<number | null, number>();
    for (const group of acting()) there.set(group?.index ?? null, (there.get(group?.index ?? null) ?? 0) + 1);
    return (group) => {
      const count = there.get(group?.index ?? null) ?? 0;
      return this.most !== null && count >= this.most ? Number.POSITIVE_INFINITY : count;
    };
  }
}
