import type { Duplex } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';

/** A line longer than this is not of the protocol: helper replies end at 1 MiB, QMP's are far shorter. */
const MAX_LINE_CHARS = 2 * 2 ** 20;
/** Values in a line, lists and objects counted with what is in them: some hundreds at most. Checking a value costs ten times its reading. */
const MAX_VALUES = 20_000;
/**
 * Lines in a row that were of no use, a long one counted once more for each 8 KiB: late answers and remains of a start come to less.
 * What runs in a guest may write to its end of a channel as fast as it can, and all of it costs the runner, with all its other
 * replicas, some microseconds a line.
 */
const MAX_USELESS = 1_000;
const COUNTED_CHARS = 8 * 1_024;

/** One JSON value a line, both ways, over a stream that may close at any time. */
export class JsonLines {
  readonly #stream: Duplex;
  readonly #decoder = new StringDecoder('utf8');
  #parts: string[] = [];
  #partChars = 0;
  #useless = 0;
  #closed: Error | null = null;

  /**
   * @param onValue every value that arrives; a line that is no JSON is left out. Says whether it was of use
   * @param onClose once, with the reason
   */
  constructor(stream: Duplex, onValue: (value: unknown) => boolean, onClose: (reason: Error) => void) {
    this.#stream = stream;
    const close = (reason: Error): void => {
      if (this.#closed) return;
      this.#closed = reason;
      stream.destroy();
      onClose(reason);
    };
    stream.on('data', (chunk: Buffer) => this.#take(this.#decoder.write(chunk), onValue, close));
    stream.on('error', (error) => close(error));
    stream.on('close', () => close(new Error('channel closed')));
    stream.on('end', () => close(new Error('channel closed by the other end')));
    stream.resume();
  }

  get closed(): Error | null {
    return this.#closed;
  }

  send(value: unknown): void {
    if (!this.#closed) this.#stream.write(`${JSON.stringify(value)}\n`);
  }

  sendRaw(text: string): void {
    if (!this.#closed) this.#stream.write(text);
  }

  destroy(): void {
    this.#stream.destroy();
  }

  #take(text: string, onValue: (value: unknown) => boolean, close: (reason: Error) => void): void {
    let rest = text;
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      const line = this.#parts.length > 0 ? this.#parts.join('') + rest.slice(0, end) : rest.slice(0, end);
      this.#parts = [];
      this.#partChars = 0;
      rest = rest.slice(end + 1);
      this.#useless = this.#isOfUse(line, onValue, close) ? 0 : this.#useless + 1 + line.length / COUNTED_CHARS;
      if (this.#useless > MAX_USELESS) close(new Error('it is flooded with what answers nothing'));
      if (this.#closed) return;
    }
    if (rest === '') return;
    this.#parts.push(rest);
    this.#partChars += rest.length;
    if (this.#partChars > MAX_LINE_CHARS) close(new Error(`a line of more than ${MAX_LINE_CHARS} characters`));
  }

  /** Whatever a value makes its taker throw ends this channel and nothing else. */
  #isOfUse(line: string, onValue: (value: unknown) => boolean, close: (reason: Error) => void): boolean {
    const value = parse(line);
    if (isLarge(value)) return false;
    try {
      return onValue(value);
    } catch (error) {
      close(new Error(`what it says cannot be taken: ${(error as Error).message}`));
      return false;
    }
  }
}

/** Whether it holds more values than any message does. Stops counting there. */
function isLarge(value: unknown): boolean {
  const left = [value];
  let count = 0;
  for (let next = left.pop(); next !== undefined || left.length > 0; next = left.pop()) {
    count += 1;
    if (typeof next !== 'object' || next === null) continue;
    const inner: unknown[] = Array.isArray(next) ? next : Object.values(next);
    if (count + left.length + inner.length > MAX_VALUES) return true;
    left.push(...inner);
  }
  return false;
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
