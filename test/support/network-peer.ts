import type { Socket } from 'node:net';
import { encodeFrame, FRAME, type Frame, FrameReader, windowBody } from '../../runner/qemu/network-frames.ts';

/** The guest's end of a network channel, frame by frame, as a test wants it. */
export class NetworkPeer {
  readonly frames: Frame[] = [];
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
    const reader = new FrameReader();
    socket.on('data', (chunk: Buffer) => {
      for (const frame of reader.read(chunk)) this.frames.push({ ...frame, body: Buffer.from(frame.body) });
    });
    socket.on('error', () => undefined);
  }

  send(kind: keyof typeof FRAME, stream: number, body?: Uint8Array): void {
    this.#socket.write(encodeFrame(FRAME[kind], stream, body));
  }

  allow(stream: number, bytes: number): void {
    this.send('window', stream, windowBody(bytes));
  }

  raw(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  /** Of one kind, on one stream. */
  of(kind: keyof typeof FRAME, stream: number): Frame[] {
    return this.frames.filter((frame) => frame.kind === FRAME[kind] && frame.stream === stream);
  }

  /** That came on a stream, all of them. */
  data(stream: number): Buffer {
    return Buffer.concat(this.of('data', stream).map(({ body }) => body));
  }
}
