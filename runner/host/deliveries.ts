import { setMaxListeners } from 'node:events';
import type { TakenJob } from '../bus/batches.ts';
import { Drained } from '../job/classify.ts';
import { deliver } from '../job/delivery.ts';
import type { Player } from '../job/player.ts';
import type { Reservation } from '../replica/contract.ts';
import type { JobEnd } from './metrics.ts';

/** A drain says what it still waits for this often. */
const STILL_MS = 5_000;

/** The jobs under way on this host. */
export class Deliveries {
  readonly #player: Player;
  readonly #onEnd: (end: JobEnd) => void;
  readonly #running = new Map<Promise<void>, string>();
  readonly #stop = new AbortController();

  /** @param onEnd told how each job ended */
  constructor(player: Player, onEnd: (end: JobEnd) => void = () => undefined) {
    this.#player = player;
    this.#onEnd = onEnd;
    // Each job under way listens; hundreds are no leak.
    setMaxListeners(0, this.#stop.signal);
  }

  get running(): number {
    return this.#running.size;
  }

  /** Plays one job; never rejects. */
  play(taken: TakenJob, reservation: Reservation): Promise<void> {
    const { batch, job } = taken.message.address;
    const playing = this.#play(taken, reservation).finally(() => this.#running.delete(playing));
    this.#running.set(playing, `${batch}/${job}`);
    return playing;
  }

  /**
   * Waits for the jobs under way; those that take longer than `budgetMs` are given back. Call once nothing more is taken.
   * @param hurry gives back at once
   */
  async drain(budgetMs: number, hurry: AbortSignal): Promise<void> {
    const { log } = this.#player;
    const giveBack = (): void => this.#stop.abort(new Drained('the runner stops; its jobs are given back'));
    if (hurry.aborted) giveBack();
    hurry.addEventListener('abort', giveBack, { once: true });
    const timer = setTimeout(giveBack, budgetMs);
    const telling = setInterval(() => log.info({ jobs: [...this.#running.values()] }, 'still draining'), STILL_MS);
    try {
      await Promise.all(this.#running.keys());
    } finally {
      clearTimeout(timer);
      clearInterval(telling);
      hurry.removeEventListener('abort', giveBack);
    }
  }

  async #play(taken: TakenJob, reservation: Reservation): Promise<void> {
    const { image, batch, job } = taken.message.address;
    const log = this.#player.log.child({ batch, job });
    const startedAt = performance.now();
    try {
      const { end, result, failure } = await deliver(this.#player, taken, reservation, this.#stop.signal);
      this.#onEnd({
        image,
        end,
        class: failure?.class ?? result?.failure?.class ?? null,
        status: result?.status ?? null,
      });
      // The one wide line of a job.
      log.info(
        {
          image,
          end,
          deliveries: taken.message.deliveries,
          duration_ms: Math.round(performance.now() - startedAt),
          ...(failure ? { class: failure.class, cause: failure.message } : {}),
          ...(result
            ? {
                ...{ attempt: result.attempt, status: result.status, valid: result.valid, score: result.score },
                ...{ steps: result.steps, failure: result.failure, timings_ms: result.timings_ms },
              }
            : {}),
        },
        'job',
      );
    } catch (error) {
      // The lease is disposed: the job comes again by ack_wait.
      log.error({ err: error }, 'delivery ended in an error of its own');
    }
  }
}
