/** More lie about only when as many pictures are in work at once. */
const MOST = 16;

/**
 * Large buffers that are used again. A picture is megabytes: left to the garbage collector, these cost more processor time than all that
 * is done with them (0.2 s an episode of ten steps).
 */
class Scratch {
  readonly #free: Buffer[] = [];

  /** @returns a buffer of just that size, of any content; whoever has it may keep it for ever */
  take(bytes: number): Buffer {
    const at = this.#free.findIndex((buffer) => buffer.length === bytes);
    return at < 0 ? Buffer.allocUnsafeSlow(bytes) : (this.#free.splice(at, 1)[0] as Buffer);
  }

  /** Gives one back: the next one to take it writes over it. */
  give(buffer: Buffer): void {
    this.#free.push(buffer);
    if (this.#free.length > MOST) this.#free.shift();
  }
}

/** Of the whole process: pictures of all machines have a size or two between them. */
export const scratch = new Scratch();
