import type { CpuGroup } from './cpu-groups.ts';
import type { VirtualReplica } from './replica.ts';

/** What a shelf tells, and asks, whoever has it. */
export interface ShelfKeeper {
  /** Something of its replicas is different. */
  changed(): void;
  /** Whether there is room for one more frozen replica, or for a frozen one to become hot. @returns why not, or null */
  admit(kind: 'frozen' | 'hot'): string | null;
  /** The processors that the next one keeps to; null for any. */
  seat(): CpuGroup | null;
  /** Tells of a replica how many act, now, on the processors that it keeps to; Infinity where no more may. */
  ranking(): (replica: VirtualReplica) => number;
  /**
   * Tells of a replica whether nobody can have it now: as many act on its processors as may, while others are free. Null where that
   * cannot be.
   */
  stranded(): ((replica: VirtualReplica) => boolean) | null;
  /**
   * For how many times as long as a replica for the stock took to make, the next one is put off: those that act are not to be hurt by
   * what nobody waits for. 0 while none acts.
   */
  restFactor(): number;
  /** One was made. */
  cloned(milliseconds: number): void;
  /** One belongs to an attempt. */
  leased(replica: VirtualReplica): void;
  /** A leased one is about to be killed. Must not throw. */
  ending(replica: VirtualReplica): Promise<void>;
}
