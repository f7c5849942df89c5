/**
 * Gathers bytes that come in pieces, so that they are in memory once: not as pieces and then again as a whole.
 * Of the length that was expected nothing is moved; beyond it the room grows by half, and what was there is copied.
 */
export class Gatherer {
  #room: Buffer;
  #bytes = 0;

  /** @param expectedBytes bounded by who asks; room that is never filled takes no memory */
  constructor(expectedBytes = 0) {
    this.#room = Buffer.allocUnsafeSlow(expectedBytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(piece: Uint8Array): void {
    const bytes = this.#bytes + piece.length;
    if (bytes > this.#room.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(bytes, Math.ceil(this.#room.length * 1.5)));
      this.#room.copy(larger, 0, 0, this.#bytes);
      this.#room = larger;
    }
    this.#room.set(piece, this.#bytes);
    this.#bytes = bytes;
  }

  /** What was gathered so far; not a copy. */
  whole(): Buffer {
    return this.#room.subarray(0, this.#bytes);
  }
}
