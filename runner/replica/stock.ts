import { costOf, type ReplicaCost } from './capacity.ts';
import { Demand } from './demand.ts';
import type { Learner } from './learner.ts';
import type { Shelf } from './shelf.ts';

/** An episode takes some seconds at least: what ends one may end a refusal. */
const SHORTAGE_MS = 10_000;
const TELL_MS = 60_000;

/** One image in a pool: its replicas, how much it is asked for, what its replicas need. */
export class Stock {
  readonly shelf: Shelf;
  readonly learner: Learner;
  readonly demand = new Demand();
  /** Places to act that are taken for it. */
  acting = 0;
  #refused: { reason: string; atMs: number } | null = null;
  #toldAtMs = Number.NEGATIVE_INFINITY;
  /** What a replica is spoken for with; learned anew now and then. */
  cost: ReplicaCost;

  constructor(shelf: Shelf, learner: Learner) {
    this.shelf = shelf;
    this.learner = learner;
    this.cost = costOf(learner.estimates);
  }

  /** Why the last reservation was refused; null when it was granted, or no replica was ready. */
  get refused(): string | null {
    return this.#refused?.reason ?? null;
  }

  /** The same once it has been so for a while, and where it is not that others act: those make room in turn. */
  get shortage(): string | null {
    if (this.#refused === null || this.#refused.reason.startsWith('cpu')) return null;
    return performance.now() - this.#refused.atMs > SHORTAGE_MS ? this.#refused.reason : null;
  }

  /** @returns whether that is to be told: not each time, where turns are taken */
  answered(refused: string | null): boolean {
    const nowMs = performance.now();
    this.#refused = refused === null ? null : { reason: refused, atMs: this.#refused?.atMs ?? nowMs };
    if (refused === null || nowMs - this.#toldAtMs < TELL_MS) return false;
    this.#toldAtMs = nowMs;
    return true;
  }

  relearn(): void {
    this.cost = costOf(this.learner.estimates);
  }
}
