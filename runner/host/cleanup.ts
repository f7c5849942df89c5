import type { Logger } from './log.ts';

/** Releases in reverse order of acquisition, each once, whatever the others do. */
export class Cleanup implements AsyncDisposable {
  readonly #releases: { what: string; release: () => unknown }[] = [];
  readonly #log: Logger;
  #running: Promise<void> | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Registers the release of something just acquired. @returns the thing */
  defer<T>(what: string, thing: T, release: (thing: T) => unknown): T {
    this.#releases.push({ what, release: () => release(thing) });
    return thing;
  }

  use<T extends AsyncDisposable>(what: string, thing: T): T {
    return this.defer(what, thing, (it) => it[Symbol.asyncDispose]());
  }

  /** Idempotent: a second call gets the first one's promise. A release that fails is logged and holds up no other. */
  run(): Promise<void> {
    this.#running ??= this.#runAll();
    return this.#running;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.run();
  }

  async #runAll(): Promise<void> {
    for (let entry = this.#releases.pop(); entry !== undefined; entry = this.#releases.pop()) {
      try {
        await entry.release();
      } catch (error) {
        this.#log.error({ err: error, what: entry.what }, 'release failed');
      }
    }
  }
}
