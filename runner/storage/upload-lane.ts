import type { AttemptSpool, FileKind } from './attempt-spool.ts';

/**
 * What is to be uploaded of one attempt: names only, the bytes are on disk.
 * A file is in one place at a time: waiting (a growing file whose last put was less than `growthMs` ago), ready, in flight,
 * or stored at a length. `whole` files are put once; `growing` ones again when they are longer than what is stored.
 */
export class UploadLane {
  readonly spool: AttemptSpool;
  readonly #growthMs: number;
  readonly #onReady: () => void;
  readonly #ready: string[] = [];
  readonly #inFlight = new Set<string>();
  readonly #waiting = new Map<string, NodeJS.Timeout>();
  readonly #stored = new Map<string, { bytes: number; at: number }>();
  readonly #stop = new AbortController();
  readonly #failed = new AbortController();
  readonly #parent: AbortSignal;
  #watchers: (() => void)[] = [];
  #hurried = false;

  /** @param signal of the attempt: when it aborts, nothing more is uploaded */
  constructor(spool: AttemptSpool, signal: AbortSignal, growthMs: number, onReady: () => void) {
    this.spool = spool;
    this.#growthMs = growthMs;
    this.#onReady = onReady;
    this.#parent = signal;
    if (signal.aborted) this.#onParent();
    else signal.addEventListener('abort', this.#onParent, { once: true });
    spool.listen((name, kind) => this.#announce(name, kind));
  }

  /** Ends the puts in flight. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted with the reason once a file of the attempt cannot be stored. */
  get failed(): AbortSignal {
    return this.#failed.signal;
  }

  /** The next file to put, now in flight; undefined when none is due. */
  take(): string | undefined {
    if (this.#stop.signal.aborted || this.#failed.signal.aborted) return undefined;
    const name = this.#ready.shift();
    if (name !== undefined) this.#inFlight.add(name);
    return name;
  }

  stored(name: string, bytes: number): void {
    this.#inFlight.delete(name);
    this.#stored.set(name, { bytes, at: performance.now() });
    if (this.spool.lengthOf(name) > bytes) this.#announce(name, 'growing');
    this.#changed();
  }

  notStored(name: string, error: unknown): void {
    this.#inFlight.delete(name);
    if (!this.#stop.signal.aborted) this.#failed.abort(error);
    this.#changed();
  }

  /** Growing files no longer wait for their second. */
  hurry(): void {
    this.#hurried = true;
    for (const [name, timer] of this.#waiting) {
      clearTimeout(timer);
      this.#waiting.delete(name);
      this.#push(name);
    }
  }

  /** Puts files once more, whatever was said of them. */
  again(names: Iterable<string>): void {
    for (const name of names) {
      this.#stored.delete(name);
      this.#push(name);
    }
  }

  /** Lengths in the bucket by name, as far as puts have succeeded. */
  storedLengths(): Map<string, number> {
    return new Map([...this.#stored].map(([name, { bytes }]) => [name, bytes]));
  }

  /** Resolves when everything the spool holds is stored. @throws why a file could not be, or the signal's reason */
  async settled(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      this.#failed.signal.throwIfAborted();
      this.#stop.signal.throwIfAborted();
      if (this.#ready.length + this.#inFlight.size + this.#waiting.size === 0) return;
      await this.#change(signal);
    }
  }

  /** Resolves when nothing is in flight any more. */
  async stop(reason: Error): Promise<void> {
    this.#end(reason);
    while (this.#inFlight.size > 0) await this.#change();
  }

  #announce(name: string, kind: FileKind): void {
    if (this.#stop.signal.aborted || this.#inFlight.has(name) || this.#waiting.has(name)) return;
    const last = this.#stored.get(name);
    const waitMs =
      kind === 'whole' || last === undefined || this.#hurried ? 0 : last.at + this.#growthMs - performance.now();
    if (waitMs <= 0 || this.#ready.includes(name)) {
      this.#push(name);
      return;
    }
    const timer = setTimeout(() => {
      this.#waiting.delete(name);
      this.#push(name);
    }, waitMs);
    this.#waiting.set(name, timer);
  }

  #push(name: string): void {
    if (this.#ready.includes(name)) return;
    this.#ready.push(name);
    this.#onReady();
  }

  readonly #onParent = (): void => this.#end(this.#parent.reason);

  #end(reason: unknown): void {
    this.#parent.removeEventListener('abort', this.#onParent);
    this.#stop.abort(reason);
    for (const timer of this.#waiting.values()) clearTimeout(timer);
    this.#waiting.clear();
    this.#ready.length = 0;
    this.#changed();
  }

  #changed(): void {
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const wake of watchers) wake();
  }

  #change(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      signal?.addEventListener('abort', wake, { once: true });
      this.#watchers.push(wake);
    });
  }
}
