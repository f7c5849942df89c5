/**
 * The network channel's frames, the same both ways, and as the guest's end has them (images/common/gymbus-network.py):
 *
 *   kind u8 | stream u32 | length u16 | so many bytes        numbers big-endian
 */
export const FRAME = {
  /** From the guest: a program of it has connected. Numbers of streams only rise. */
  open: 1,
  data: 2,
  /** So many more bytes (u32) may be sent. */
  window: 3,
  /** This end says no more; the other may go on. */
  end: 4,
  /** The stream is gone, whatever was under way. */
  reset: 5,
} as const;

export interface Frame {
  kind: (typeof FRAME)[keyof typeof FRAME];
  stream: number;
  body: Buffer;
}

const HEADER_BYTES = 7;
/** Of one frame's body: a stream that sends much does not hold up the others for long. */
export const MOST_BODY_BYTES = 16 * 1024;
/** Bytes that may be sent on a new stream before more are allowed. Whoever is sent them can hold as many. */
export const WINDOW_BYTES = 128 * 1024;

/** The other end does not speak the protocol, or not any more. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
}

export function encodeFrame(kind: Frame['kind'], stream: number, body: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + body.length);
  frame.writeUInt8(kind, 0);
  frame.writeUInt32BE(stream, 1);
  frame.writeUInt16BE(body.length, 5);
  frame.set(body, HEADER_BYTES);
  return frame;
}

export function windowBody(bytes: number): Buffer {
  const body = Buffer.allocUnsafe(4);
  body.writeUInt32BE(bytes);
  return body;
}

/** What a body's length may be, by kind. */
const LENGTHS: ReadonlyMap<number, readonly [least: number, most: number]> = new Map([
  [FRAME.open, [0, 0]],
  [FRAME.data, [1, MOST_BODY_BYTES]],
  [FRAME.window, [4, 4]],
  [FRAME.end, [0, 0]],
  [FRAME.reset, [0, 0]],
]);

/** Takes bytes as they come and gives frames. Holds less than one frame. */
export class FrameReader {
  #rest: Buffer = Buffer.alloc(0);

  /** @throws ProtocolError at the first frame that is none; those before it were given */
  *read(chunk: Buffer): Generator<Frame> {
    const bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const kind = bytes.readUInt8(at);
      const length = bytes.readUInt16BE(at + 5);
      const bounds = LENGTHS.get(kind);
      if (!bounds) throw new ProtocolError(`a frame of no known kind (${kind})`);
      if (length < bounds[0] || length > bounds[1]) {
        throw new ProtocolError(`a frame of kind ${kind} with ${length} bytes`);
      }
      const end = at + HEADER_BYTES + length;
      if (bytes.length < end) break;
      const body = bytes.subarray(at + HEADER_BYTES, end);
      yield { kind: kind as Frame['kind'], stream: bytes.readUInt32BE(at + 1), body };
      at = end;
    }
    // A copy: what is left must not hold on to all that came with it.
    this.#rest = Buffer.from(bytes.subarray(at));
  }
}
