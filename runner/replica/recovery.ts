import type { Logger } from 'pino';
import { type Template, TemplateDamaged } from './template.ts';

/** After the first failure, doubled with each up to the last: a host in trouble is not helped by more clones. */
const BACKOFF_MS = { first: 500, last: 60_000 };

/** What keeps a shelf from being full. */
export interface Trouble {
  message: string;
  /** In a row. */
  failures: number;
}

/** What a shelf does about its failures. */
export interface RecoveryOrder {
  image: string;
  log: Logger;
  /** Aborted when its shelf is closed. */
  closing: AbortSignal;
  /** Makes the template anew; ends with the signal. */
  rebuild: (signal: AbortSignal) => Promise<Template>;
  /** Called at once when the template was found damaged, and with the one that was made in its place. */
  damaged: () => void;
  replaced: (template: Template) => void;
  /** Replicas may be made again. */
  again: () => void;
  /** There is trouble, or another one, or none any more. */
  changed: () => void;
}

/**
 * After a failure nothing is made for a while, longer with each in a row; a template whose files were changed is made anew first. The one
 * writer of a shelf's trouble.
 */
export class Recovery {
  readonly #order: RecoveryOrder;
  #trouble: Trouble | null = null;
  #retry: NodeJS.Timeout | undefined;
  /** Its files were changed: nothing is made of it, and it is made anew. */
  #damaged = false;
  /** The template being made anew; never rejects. */
  #rebuilding: Promise<void> = Promise.resolve();

  constructor(order: RecoveryOrder) {
    this.#order = order;
  }

  get trouble(): Trouble | null {
    return this.#trouble;
  }

  /** Whether nothing is to be made for now. */
  get waits(): boolean {
    return this.#retry !== undefined;
  }

  succeeded(): void {
    if (this.#damaged || this.#trouble === null) return;
    this.#trouble = null;
    this.#order.changed();
  }

  failed(error: Error): void {
    // Failures of what was condemned say nothing new.
    if (this.#order.closing.aborted || this.#damaged) return;
    this.#damaged = error instanceof TemplateDamaged || error.cause instanceof TemplateDamaged;
    this.#backOff(error);
    if (this.#damaged) this.#order.damaged();
  }

  /** To be called once `closing` is aborted. Resolves when nothing is being made anew any more. */
  close(): Promise<void> {
    clearTimeout(this.#retry);
    return this.#rebuilding;
  }

  #backOff(error: Error): void {
    const { image, log } = this.#order;
    const failures = (this.#trouble?.failures ?? 0) + 1;
    this.#trouble = { message: error.message, failures };
    const waitMs = Math.min(BACKOFF_MS.last, BACKOFF_MS.first * 2 ** (failures - 1));
    log.warn({ err: error, image, failures, retry_ms: waitMs }, 'replica not made');
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#tryAgain(), waitMs);
  }

  #tryAgain(): void {
    if (!this.#damaged) {
      this.#end();
      return;
    }
    this.#rebuilding = this.#order.rebuild(this.#order.closing).then(
      (template) => {
        this.#order.replaced(template);
        this.#end();
      },
      (error: Error) => {
        if (!this.#order.closing.aborted) this.#backOff(error);
      },
    );
  }

  #end(): void {
    this.#damaged = false;
    this.#retry = undefined;
    this.#order.again();
  }
}
