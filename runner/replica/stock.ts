import { costOf, type ReplicaCost } from './capacity.ts';
import { Demand } from './demand.ts';
import type { Learner } from './learner.ts';
import type { Shelf } from './shelf.ts';

/** One image in a pool: its replicas, how much it is asked for, what its replicas need. */
export class Stock {
  readonly shelf: Shelf;
  readonly learner: Learner;
  readonly demand = new Demand();
  /** Places to act that are taken for it. */
  acting = 0;
  /** Why the last reservation was refused; null when it was granted. */
  refused: string | null = null;
  /** What a replica is spoken for with; learned anew now and then. */
  cost: ReplicaCost;

  constructor(shelf: Shelf, learner: Learner) {
    this.shelf = shelf;
    this.learner = learner;
    this.cost = costOf(learner.estimates);
  }

  relearn(): void {
    this.cost = costOf(this.learner.estimates);
  }
}
