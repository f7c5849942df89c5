import type { Duplex } from 'node:stream';
import { encodeFrame, FRAME, type Frame, FrameReader, ProtocolError } from './network-frames.ts';
import { type Carrier, NetworkStream } from './network-stream.ts';

/** Streams at once. The guest's end has half as many, and lets others wait: one that is over there may not be quite over here. */
const MOST_STREAMS = 128;
/** Streams that may be opened at once after a rest, and each second: a browser opens some dozens a page. */
const OPENS = { burst: 256, perSecond: 64 } as const;
/** Frames in a row that do nothing: remains of a stream that was just reset come to less. Each costs the runner a microsecond or two. */
const MOST_USELESS = 1_000;
/** Waiting for the guest to take it; then nothing more is read from the guest either. */
const MOST_UNSENT_BYTES = 2 ** 20;

/**
 * The runner's end of a guest's network: connections of its programs, over one virtio-serial port. The guest's end is nobody's friend:
 * what runs in there may write to the port whatever it likes, as fast as it can. All that is held for it is bounded, and a guest that
 * does not speak the protocol loses its network and nothing else.
 */
export class NetworkChannel {
  readonly #stream: Duplex;
  readonly #accept: (connection: Duplex) => void;
  readonly #onClose: (reason: string) => void;
  readonly #reader = new FrameReader();
  readonly #streams = new Map<number, NetworkStream>();
  readonly #carrier: Carrier;
  #newest = 0;
  #useless = 0;
  #opens = { left: OPENS.burst as number, atMs: performance.now() };
  #closed = false;

  /**
   * @param stream to the port
   * @param accept is handed each new connection
   * @param onClose told once why there is no network any more
   */
  constructor(stream: Duplex, accept: (connection: Duplex) => void, onClose: (reason: string) => void) {
    this.#stream = stream;
    this.#accept = accept;
    this.#onClose = onClose;
    this.#carrier = {
      send: (frame) => this.#send(frame),
      gone: ({ number }) => this.#streams.delete(number),
    };
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('drain', () => stream.resume());
    stream.on('error', (error) => this.close(error.message));
    stream.on('end', () => this.close('closed by the other end'));
    stream.on('close', () => this.close('closed'));
    stream.resume();
    if (stream.destroyed) this.close('closed');
  }

  /** Ends every connection; idempotent. */
  close(reason: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.destroy();
    for (const stream of [...this.#streams.values()]) stream.destroy();
    this.#onClose(reason);
  }

  #send(frame: Buffer): void {
    if (this.#closed) return;
    this.#stream.write(frame);
    if (this.#stream.writableLength > MOST_UNSENT_BYTES) this.#stream.pause();
  }

  #take(chunk: Buffer): void {
    try {
      for (const frame of this.#reader.read(chunk)) {
        if (this.#closed) return;
        this.#useless = this.#act(frame) ? 0 : this.#useless + 1;
        if (this.#useless > MOST_USELESS) throw new ProtocolError('it is flooded with what does nothing');
      }
    } catch (error) {
      // Whatever it is, one guest's network ends with it, and no other's.
      const { message } = error as Error;
      const isGuests = error instanceof ProtocolError;
      this.close(isGuests ? `the guest does not keep to the protocol of its network: ${message}` : message);
    }
  }

  /** @returns whether it was of use */
  #act({ kind, stream: number, body }: Frame): boolean {
    if (kind === FRAME.open) return this.#open(number);
    if (number > this.#newest || number === 0) throw new ProtocolError(`a frame for stream ${number}, which never was`);
    // Reset here while this was under way.
    const stream = this.#streams.get(number);
    if (!stream) return false;
    if (kind === FRAME.data) stream.receive(body);
    else if (kind === FRAME.window) stream.receiveWindow(body.readUInt32BE());
    else if (kind === FRAME.end) stream.receiveEnd();
    else stream.receiveReset();
    return true;
  }

  #open(number: number): boolean {
    if (number <= this.#newest) throw new ProtocolError(`stream ${number} opened after ${this.#newest}`);
    this.#newest = number;
    if (this.#streams.size >= MOST_STREAMS || !this.#mayOpen()) {
      this.#send(encodeFrame(FRAME.reset, number));
      return false;
    }
    const stream = new NetworkStream(number, this.#carrier);
    this.#streams.set(number, stream);
    this.#accept(stream);
    return true;
  }

  #mayOpen(): boolean {
    const now = performance.now();
    const gained = ((now - this.#opens.atMs) / 1_000) * OPENS.perSecond;
    const left = Math.min(OPENS.burst, this.#opens.left + gained);
    this.#opens = { left: left >= 1 ? left - 1 : left, atMs: now };
    return left >= 1;
  }
}
