import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';

const WAIT_MS = 60_000;
const CTRL_C = '\x03';

export interface TerminalSettings {
  env?: Record<string, string>;
  cwd?: string;
  columns?: number;
  rows?: number;
}

/** A command on a terminal of its own, as a person has it: typed into, read from, resized by nobody. */
export class Terminal implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #exited: Promise<number>;
  #sent = '';
  #wake: (() => void)[] = [];

  constructor(command: readonly [string, ...string[]], settings: TerminalSettings = {}) {
    const { env = {}, cwd, columns = 100, rows = 40 } = settings;
    const script = path.join(import.meta.dirname, 'terminal.py');
    this.#child = spawn('python3', [script, String(columns), String(rows), ...command], {
      // Colours and bars as on a person's terminal, whatever the tests themselves run in.
      env: { ...process.env, TERM: 'xterm-256color', CI: '', NO_COLOR: '1', ...env },
      ...(cwd === undefined ? {} : { cwd }),
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.#sent += text;
      this.#tell();
    });
    this.#exited = once(this.#child, 'close').then(([code]) => code as number);
    void this.#exited.then(() => this.#tell());
  }

  /** Of the terminal; the command is below it. */
  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Everything the terminal was sent, escape sequences included. */
  get sent(): string {
    return this.#sent;
  }

  /** What was written, without colours, cursor movements and the like; bars drawn again appear again. */
  get text(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out
    return this.#sent.replaceAll(/\x1b\[[0-9;?]*[A-Za-z]/g, '').replaceAll('\r', '');
  }

  type(text: string): void {
    this.#child.stdin?.write(text);
  }

  /** As a person does it: the terminal sends SIGINT to everything in the foreground. */
  interrupt(): void {
    this.type(CTRL_C);
  }

  /** Waits until a text has been shown. @throws with what was, when the command ends or the time is over before */
  async shows(what: string | RegExp, withinMs = WAIT_MS): Promise<void> {
    await this.#until(
      () => (typeof what === 'string' ? this.text.includes(what) : what.test(this.text)),
      withinMs,
      `${what}`,
    );
  }

  /** The exit code of the command, 128 + n where signal n ended it. @throws when it does not end in time */
  async exit(withinMs = WAIT_MS): Promise<number> {
    const timer = new AbortController();
    const late = new Promise<never>((_, reject) => {
      const timeout = setTimeout(() => reject(new Error(`did not end within ${withinMs} ms:\n${this.text}`)), withinMs);
      timer.signal.addEventListener('abort', () => clearTimeout(timeout));
    });
    return Promise.race([this.#exited, late]).finally(() => timer.abort());
  }

  /** Hangs up: the kernel tells what still runs on it with SIGHUP. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  async #until(holds: () => boolean, withinMs: number, what: string): Promise<void> {
    const endMs = performance.now() + withinMs;
    while (!holds()) {
      const leftMs = endMs - performance.now();
      if (leftMs <= 0) throw new Error(`${what} was not shown within ${withinMs} ms:\n${this.text}`);
      if (this.#child.exitCode !== null) throw new Error(`it ended without showing ${what}:\n${this.text}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#wake.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #tell(): void {
    const waiting = this.#wake;
    this.#wake = [];
    for (const wake of waiting) wake();
  }
}
