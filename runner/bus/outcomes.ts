import { Result } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { BusAway, lastStored, type Patience, swapStored, untilAnswered } from './stored.ts';

/** The committed outcome of a job, and the number a retry must name to supersede it. */
export interface Outcome {
  seq: number;
  result: Result;
}

export type Commit =
  | { won: true; seq: number }
  /** Another outcome was committed first, and stands. */
  | { won: false; seq: number; by: Result };

/** Something stands on a results subject that is no result; not ours to replace. */
export class UnreadableOutcome extends Error {
  override readonly name = 'UnreadableOutcome';
  readonly seq: number;
  constructor(subject: string, seq: number, cause: unknown) {
    super(`message ${seq} on ${subject} is no gymbus result: ${cause instanceof Error ? cause.message : cause}`, {
      cause,
    });
    this.seq = seq;
  }
}

/** A commit named an outcome that does not stand: the fence of the job message is wrong. */
export class FenceBroken extends Error {
  override readonly name = 'FenceBroken';
}

/**
 * Reads the outcome of a job from the leader of the results stream.
 * @throws UnreadableOutcome; the signal's reason when the bus stays away until then
 */
export function readOutcome(bus: Bus, batch: string, job: string, patience?: Patience): Promise<Outcome | null> {
  return untilAnswered(bus, 'read outcome', async () => (await readStored(bus, batch, job))?.outcome ?? null, patience);
}

/**
 * Commits the outcome of a job, once: the first wins, whatever its status. Goes on for as long as the bus is away, for
 * an answer that was lost is told apart by reading who won: the same attempt means that it was us.
 * @param fence sequence of the outcome this one supersedes, 0 for none
 * @throws FenceBroken, UnreadableOutcome; the signal's reason
 */
export function commitOutcome(bus: Bus, result: Result, fence: number, patience?: Patience): Promise<Commit> {
  const subject = bus.names.resultSubject(result.batch_id, result.job_id);
  const bytes = Buffer.from(JSON.stringify(result));
  return untilAnswered(
    bus,
    'commit outcome',
    async (): Promise<Commit> => {
      const seq = await swapStored(bus, subject, bytes, fence);
      if (seq !== null) return { won: true, seq };
      const stored = await readStored(bus, result.batch_id, result.job_id);
      if (stored === null) {
        throw new FenceBroken(
          `outcome ${fence} of ${result.batch_id}/${result.job_id} is to be superseded, but there is none`,
        );
      }
      const { outcome } = stored;
      if (outcome.seq === fence) throw new BusAway('the commit was refused and yet the fence stands');
      // A job that made no attempt is told by its bytes: they carry the runner and the time.
      const ours =
        result.attempt !== null ? outcome.result.attempt === result.attempt : bytes.equals(Buffer.from(stored.data));
      return ours ? { won: true, seq: outcome.seq } : { won: false, seq: outcome.seq, by: outcome.result };
    },
    patience,
  );
}

async function readStored(
  bus: Bus,
  batch: string,
  job: string,
): Promise<{ outcome: Outcome; data: Uint8Array } | null> {
  const subject = bus.names.resultSubject(batch, job);
  const stored = await lastStored(bus, bus.names.resultsStream, subject);
  if (stored === null) return null;
  try {
    const result = Result.parse(JSON.parse(Buffer.from(stored.data).toString('utf8')));
    return { outcome: { seq: stored.seq, result }, data: stored.data };
  } catch (error) {
    throw new UnreadableOutcome(subject, stored.seq, error);
  }
}
