import { CliError, EXIT } from './error.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** A person, or the system, ends a command: the first signal aborts it, so that it cleans up; the third ends it at once. */
export class Interrupt implements Disposable {
  readonly #controller = new AbortController();
  readonly #again = new AbortController();
  readonly #listener: () => void;
  #count = 0;

  constructor() {
    this.#listener = () => {
      this.#count += 1;
      if (this.#count === 1) this.#controller.abort(new CliError('interrupted', EXIT.interrupted));
      else if (this.#count === 2) this.#again.abort();
      else process.exit(EXIT.interrupted);
    };
    for (const name of SIGNALS) process.on(name, this.#listener);
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Aborted by the second, or when nobody waits: be quick. */
  get hurry(): AbortSignal {
    return this.#again.signal;
  }

  /** Ends the command from within, as a first signal does. */
  stop(reason: string): void {
    if (!this.#controller.signal.aborted) this.#controller.abort(new CliError(reason, EXIT.no));
  }

  /** The same for what leaves nothing to wait for, or nobody who waits: as two signals do. */
  fail(reason: string): void {
    this.#again.abort();
    this.stop(reason);
  }

  [Symbol.dispose](): void {
    for (const name of SIGNALS) process.off(name, this.#listener);
  }
}
