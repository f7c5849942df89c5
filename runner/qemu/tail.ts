/** The last bytes of a stream, so that a chatty one cannot fill memory or disk. */
export class Tail {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(chunk: Buffer): void {
    // A view into a pooled buffer would keep the whole pool alive.
    this.#chunks.push(Buffer.from(chunk.subarray(Math.max(0, chunk.length - this.#maxBytes))));
    this.#bytes += chunk.length;
    if (this.#bytes > 2 * this.#maxBytes || this.#chunks.length > 256) this.#compact();
  }

  read(): Buffer {
    this.#compact();
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  #compact(): void {
    const whole = Buffer.concat(this.#chunks);
    const kept = Buffer.from(whole.subarray(Math.max(0, whole.length - this.#maxBytes)));
    this.#chunks = [kept];
    this.#bytes = kept.length;
  }
}
