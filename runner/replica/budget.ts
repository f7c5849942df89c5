import type { ReplicaPhase } from '../../schemas/index.ts';
import type { ReplicaCost } from './capacity.ts';
import type { Spoken } from './ledger.ts';
import type { VirtualReplica } from './replica.ts';

const SMALL: ReadonlySet<ReplicaPhase> = new Set(['cloning', 'restoring', 'frozen']);

/** What one replica was spoken for with. @param acting whether a reservation or an attempt has it */
export function allowance(phase: ReplicaPhase, acting: boolean, cost: ReplicaCost): number {
  if (acting) return cost.actingBytes;
  return SMALL.has(phase) ? cost.frozenBytes : cost.hotBytes;
}

/** One image's part in what a pool speaks for. */
export interface Part {
  members: ReadonlySet<VirtualReplica>;
  /** Places to act that are taken, with or without a replica at this moment. */
  acting: number;
  cost: ReplicaCost;
}

/** Pure but for the replicas' phases: the sum of what a pool has. Each place is an acting replica, and the other members are what they are. */
export function spokenFor(
  parts: readonly Part[],
  isActing: (replica: VirtualReplica) => boolean,
  milliCpusEach: number,
): Spoken {
  const spoken = { acting: 0, milliCpus: 0, memoryBytes: 0, diskBytes: 0 };
  for (const { members, acting, cost } of parts) {
    spoken.acting += acting;
    spoken.milliCpus += acting * milliCpusEach;
    spoken.diskBytes += acting * cost.diskBytes;
    spoken.memoryBytes += acting * cost.actingBytes;
    for (const replica of members) {
      if (!isActing(replica)) spoken.memoryBytes += allowance(replica.phase, false, cost);
    }
  }
  return spoken;
}
