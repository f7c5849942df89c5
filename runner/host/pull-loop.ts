import { setTimeout as sleep } from 'node:timers/promises';
import type { Batches, TakenJob } from '../bus/batches.ts';
import { joinSignals } from '../job/limit.ts';
import type { ReplicaPool, Reservation } from '../replica/contract.ts';

/** The host, as looked at before each pull. */
export interface HostLook {
  /** Why no job may be taken now, or null. */
  reason: string | null;
  diskFreeBytes: number;
}

export interface PullLoopParams {
  batches: Batches;
  pool: ReplicaPool;
  look(): Promise<HostLook>;
  /** Sees one job to its end; never rejects. */
  play(taken: TakenJob, reservation: Reservation): Promise<void>;
  onLook(look: HostLook): void;
  /** Ends pulling; jobs under way go on. */
  signal: AbortSignal;
}

/** A host that holds looks again this often whether it may pull; one that waits for a replica, whether it has begun to hold. */
const LOOK_MS = 1_000;

/**
 * Takes jobs for one image while there are ready replicas for them: point 1 of the law of delivery. Resolves when `signal` aborts.
 * @param imageName one loop an image, for each has replicas of its own
 */
export async function pullLoop(imageName: string, params: PullLoopParams): Promise<void> {
  const { batches, pool, signal } = params;
  let busy = false;
  while (!signal.aborted) {
    const look = await params.look();
    // Also while it holds: how much waits decides what is made room for.
    const waiting = batches.waiting(imageName);
    pool.expect(imageName, waiting);
    if (look.reason !== null) {
      params.onLook(look);
      await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
      continue;
    }
    const reservations = reserve(pool, imageName, busy ? Number.POSITIVE_INFINITY : Math.max(1, waiting));
    if (reservations.length === 0) {
      params.onLook({ ...look, reason: pool.refusalOf(imageName) });
      await waitReady(pool, imageName, signal);
      continue;
    }
    params.onLook(look);
    const taken = await batches.take(imageName, reservations.length, signal);
    for (const job of taken) {
      const reservation = reservations.shift();
      if (reservation === undefined) throw new Error('the bus handed out more jobs than were asked for');
      void params.play(job, reservation);
    }
    for (const unused of reservations) unused.release();
    busy = taken.length > 0;
    if (!busy) await batches.wait(imageName, signal);
  }
}

/**
 * While jobs come, all there are; else for the jobs that are known, and one for any that is not: other runners of the host want places,
 * too, and one that looks at an empty queue each second is not to take all of them for that moment.
 */
function reserve(pool: ReplicaPool, imageName: string, most: number): Reservation[] {
  const reservations: Reservation[] = [];
  while (reservations.length < most) {
    const next = pool.reserve(imageName);
    if (next === null) break;
    reservations.push(next);
  }
  return reservations;
}

/** With no room for new replicas none may ever come: it returns to look why. */
async function waitReady(pool: ReplicaPool, imageName: string, signal: AbortSignal): Promise<void> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), LOOK_MS);
  using either = joinSignals(signal, late.signal);
  try {
    await pool.waitReady(imageName, either.signal);
  } finally {
    clearTimeout(timer);
  }
}
