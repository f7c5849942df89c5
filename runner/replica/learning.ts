import { BandwidthMeter } from './bandwidth.ts';
import type { Engine } from './engine.ts';
import type { KernelFolders } from './host-now.ts';
import type { Stock } from './stock.ts';

export interface LearningSettings {
  kernel: KernelFolders;
  /** How often what was learned is written down, and planned with. */
  learnMs?: number | undefined;
  /** How long nobody must have asked before a desktop is let run to see what it uses. */
  quietMs?: number | undefined;
}

const LEARN_MS = 30_000;
const QUIET_MS = 60_000;

/** Has the replicas of a pool looked at for what they need, and keeps what was learned with their templates. */
export class Learning {
  readonly #log: Engine['log'];
  readonly #stocks: readonly Stock[];
  readonly #settings: LearningSettings;
  readonly #bandwidth = new BandwidthMeter();
  #learnedAtMs = performance.now();
  #saving: Promise<void> = Promise.resolve();

  constructor({ log }: Pick<Engine, 'log'>, stocks: readonly Stock[], settings: LearningSettings) {
    this.#log = log;
    this.#stocks = stocks;
    this.#settings = settings;
  }

  /**
   * Looks at the replicas there are.
   * @param acting how many act in all stocks @param calm whether the host has room for a desktop that only runs
   * @returns whether what is planned with is new
   */
  look(acting: number, calm: boolean): boolean {
    for (const { shelf, learner } of this.#stocks) learner.look(shelf.members);
    const each = this.#bandwidth.look(this.#settings.kernel, acting);
    for (const stock of this.#stocks) if (each !== null && stock.acting > 0) stock.learner.bandwidth(each);
    if (acting === 0 && calm) this.#watchIdle();
    if (performance.now() - this.#learnedAtMs < (this.#settings.learnMs ?? LEARN_MS)) return false;
    this.#learnedAtMs = performance.now();
    void this.save();
    for (const stock of this.#stocks) stock.relearn();
    return true;
  }

  /** One at a time; what cannot be written down is said and holds up nothing. */
  save(): Promise<void> {
    this.#saving = this.#saving.then(() => this.#save());
    return this.#saving;
  }

  #watchIdle(): void {
    for (const { shelf, learner, demand } of this.#stocks) {
      if (demand.idleMs > (this.#settings.quietMs ?? QUIET_MS) && learner.wantsIdle) {
        shelf.borrow((replica, signal) => learner.watchIdle(replica, signal));
      }
    }
  }

  async #save(): Promise<void> {
    for (const { learner, shelf } of this.#stocks) {
      await learner.save().catch((error: Error) => {
        // The template may just be made anew.
        this.#log.debug({ err: error, image: shelf.image.name }, 'profile not saved');
      });
    }
  }
}
