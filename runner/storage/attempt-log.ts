import { attemptFiles } from '../../schemas/index.ts';
import type { AttemptSpool } from './attempt-spool.ts';

/** A log is for reading: one attempt that logs without end does not fill the disk. */
const MOST_BYTES = 16 << 20;

/**
 * A pino destination that writes an attempt's lines to its `runner.log`. Never throws and never waits: lines that do not
 * fit on disk or beyond 16 MiB are counted, and the count is the log's last line.
 */
export class AttemptLog {
  readonly #spool: AttemptSpool;
  #lines: string[] = [];
  #writing: Promise<void> | undefined;
  #bytes = 0;
  #lost = 0;
  #ended = false;

  constructor(spool: AttemptSpool) {
    this.#spool = spool;
  }

  /** @param line ends in a newline */
  write(line: string): void {
    if (this.#ended) return;
    this.#bytes += line.length;
    if (this.#bytes > MOST_BYTES) {
      this.#lost++;
      return;
    }
    this.#lines.push(line);
    this.#writing ??= this.#drain().finally(() => {
      this.#writing = undefined;
    });
  }

  /** Resolves when every line is on disk; later ones are dropped. */
  async end(): Promise<void> {
    this.#ended = true;
    await this.#writing;
    if (this.#lost === 0) return;
    const last = { level: 40, time: new Date().toISOString(), lost: this.#lost, msg: 'log lines were lost' };
    await this.#append(`${JSON.stringify(last)}\n`);
  }

  async #drain(): Promise<void> {
    // One turn of the event loop gathers the lines written meanwhile.
    await new Promise(setImmediate);
    while (this.#lines.length > 0) {
      const lines = this.#lines;
      this.#lines = [];
      if (!(await this.#append(lines.join('')))) this.#lost += lines.length;
    }
  }

  async #append(text: string): Promise<boolean> {
    try {
      await this.#spool.append(attemptFiles.log, text);
      return true;
    } catch {
      // A full disk fails the attempt by its pictures; the log must not do so first.
      return false;
    }
  }
}
