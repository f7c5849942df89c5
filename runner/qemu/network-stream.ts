import { Duplex } from 'node:stream';
import { encodeFrame, FRAME, MOST_BODY_BYTES, ProtocolError, WINDOW_BYTES, windowBody } from './network-frames.ts';

/** What a stream does to its channel. */
export interface Carrier {
  send(frame: Buffer): void;
  /** Called once, when nothing more will be sent on it. */
  gone(stream: NetworkStream): void;
}

/**
 * One connection of a program in the guest. Half-closes as TCP does. Holds at most a window of what its reader has not taken: more
 * is only allowed to be sent as that is read.
 */
export class NetworkStream extends Duplex {
  readonly number: number;
  readonly #carrier: Carrier;
  /** Bytes that this end may send. */
  #credit = WINDOW_BYTES;
  /** What waits for credit. */
  #unsent: { bytes: Buffer; done: () => void } | null = null;
  /** Bytes that the other end may send. */
  #window = WINDOW_BYTES;
  /** Bytes that were read, and for which no more were allowed yet. */
  #read = 0;
  /** What came while the reader was busy, in one piece: thousands of tiny frames cost no more than one large one. */
  #held: Buffer | null = null;
  #heldBytes = 0;
  #readerBusy = false;
  #otherEnded = false;
  #ended = false;

  constructor(number: number, carrier: Carrier) {
    // The window is the buffer: one more piece beside what the reader has would be a second one.
    super({ allowHalfOpen: true, readableHighWaterMark: 1, writableHighWaterMark: MOST_BODY_BYTES });
    this.number = number;
    this.#carrier = carrier;
    // Whoever uses it may be gone: a stream of a guest never ends its runner.
    this.on('error', () => undefined);
  }

  /** @throws ProtocolError for more than was allowed, or after its end */
  receive(body: Buffer): void {
    if (this.#otherEnded) throw new ProtocolError(`data on stream ${this.number} after its end`);
    this.#window -= body.length;
    if (this.#window < 0) throw new ProtocolError(`more data on stream ${this.number} than its window`);
    if (this.destroyed) return;
    if (this.#readerBusy) this.#hold(body);
    else this.#give(body);
  }

  /** @throws ProtocolError when it has ended before */
  receiveEnd(): void {
    if (this.#otherEnded) throw new ProtocolError(`a second end of stream ${this.number}`);
    this.#otherEnded = true;
    if (!this.#readerBusy) this.push(null);
  }

  /** @throws ProtocolError when it may send no more, or far more than a window then: nobody has read so much */
  receiveWindow(bytes: number): void {
    if (bytes === 0) throw new ProtocolError(`a window of nothing on stream ${this.number}`);
    this.#credit += bytes;
    if (this.#credit > WINDOW_BYTES)
      throw new ProtocolError(`a window of ${this.#credit} bytes on stream ${this.number}`);
    this.#sendUnsent();
  }

  /** The other end has forgotten it. */
  receiveReset(): void {
    this.#ended = true;
    this.#otherEnded = true;
    this.destroy();
  }

  override _read(): void {
    if (!this.#readerBusy) return;
    this.#readerBusy = false;
    const held = this.#held?.subarray(0, this.#heldBytes);
    this.#held = null;
    this.#heldBytes = 0;
    if (held && held.length > 0) this.#give(held);
    if (this.#otherEnded && !this.#readerBusy) this.push(null);
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#unsent = { bytes: chunk, done };
    this.#sendUnsent();
  }

  override _final(done: () => void): void {
    this.#ended = true;
    this.#carrier.send(encodeFrame(FRAME.end, this.number));
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.#ended || !this.#otherEnded) this.#carrier.send(encodeFrame(FRAME.reset, this.number));
    this.#held = null;
    this.#carrier.gone(this);
    done(error);
  }

  /** To the reader; what it is given counts as read, for it asks for more when it has taken that. */
  #give(bytes: Buffer): void {
    this.#readerBusy = !this.push(bytes);
    this.#allow(bytes.length);
  }

  #hold(body: Buffer): void {
    this.#held ??= Buffer.allocUnsafeSlow(WINDOW_BYTES);
    body.copy(this.#held, this.#heldBytes);
    this.#heldBytes += body.length;
  }

  /** Some at a time: each is a frame of its own. */
  #allow(bytes: number): void {
    this.#read += bytes;
    if (this.#read < WINDOW_BYTES / 2 || this.#otherEnded || this.destroyed) return;
    this.#window += this.#read;
    this.#carrier.send(encodeFrame(FRAME.window, this.number, windowBody(this.#read)));
    this.#read = 0;
  }

  #sendUnsent(): void {
    while (this.#unsent && this.#credit > 0) {
      const { bytes, done } = this.#unsent;
      const piece = bytes.subarray(0, Math.min(MOST_BODY_BYTES, this.#credit));
      this.#credit -= piece.length;
      this.#carrier.send(encodeFrame(FRAME.data, this.number, piece));
      const rest = bytes.subarray(piece.length);
      this.#unsent = rest.length > 0 ? { bytes: rest, done } : null;
      if (rest.length === 0) done();
    }
  }
}
