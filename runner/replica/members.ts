import type { ReplicaPhase } from '../../schemas/index.ts';
import type { VirtualReplica } from './replica.ts';

/** The replicas of a shelf: which there are, which are set aside for somebody, to which something is being done. */
export class Members {
  readonly all = new Set<VirtualReplica>();
  readonly reserved = new Set<VirtualReplica>();
  readonly busy = new Set<VirtualReplica>();

  /**
   * One in this phase that nobody has and nothing is done to.
   * @param rank the one with the least is chosen, the first of several, and none with `Infinity`
   */
  free(phase: 'hot' | 'frozen', rank: (replica: VirtualReplica) => number = () => 0): VirtualReplica | null {
    let found: VirtualReplica | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const replica of this.all) {
      if (replica.phase !== phase || this.reserved.has(replica) || this.busy.has(replica)) continue;
      const ranked = rank(replica);
      if (ranked >= least) continue;
      [found, least] = [replica, ranked];
      if (ranked === 0) break;
    }
    return found;
  }

  /** @param except left out */
  count(phases: readonly ReplicaPhase[], except: ((replica: VirtualReplica) => boolean) | null = null): number {
    let count = 0;
    for (const replica of this.all) if (phases.includes(replica.phase) && !except?.(replica)) count += 1;
    return count;
  }

  /** Whether without it none would be left that could be handed out. */
  isLast(one: VirtualReplica): boolean {
    for (const replica of this.all) {
      const ready = replica.phase === 'hot' || replica.phase === 'frozen';
      if (ready && replica !== one && !this.reserved.has(replica)) return false;
    }
    return true;
  }

  remove(replica: VirtualReplica): void {
    this.all.delete(replica);
    this.reserved.delete(replica);
  }
}
