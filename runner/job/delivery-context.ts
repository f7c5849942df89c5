import type { Result, TrajectoryJob } from '../../schemas/index.ts';
import type { Lease } from '../bus/lease.ts';
import type { Reservation } from '../replica/contract.ts';
import type { Player } from './player.ts';
import type { OutcomeBasis } from './result.ts';

/** How a delivery ended, for the log's one wide line a job. */
export interface DeliverySummary {
  end: 'committed' | 'already_done' | 'refused' | 'retrying' | 'returned' | 'lost';
  result?: Result;
  failure?: { class: string; message: string };
}

/** One delivered job and what is held for it. */
export interface Delivery {
  player: Player;
  lease: Lease;
  reservation: Reservation;
  /** The job is ours and the runner has time for it; its reason is why not. Ends playing, and waiting for the bus before it. */
  hold: AbortSignal;
  /**
   * Ends storing and committing: the runner stops, or the bound of a delivery. Outlives the lease, for once an episode is played
   * its outcome is worth having, and the fence alone decides whether it stands.
   */
  persist: AbortSignal;
  sha256: string;
  startedAt: Date;
}

export function basisOf({ player, lease, sha256, startedAt }: Delivery, job: TrajectoryJob | null): OutcomeBasis {
  return { address: lease.message.address, jobSha256: sha256, runner: player.runner, job, startedAt };
}

export function committed(result: Result): DeliverySummary {
  return { end: 'committed', result };
}
