import { readFile, unlink } from 'node:fs/promises';
import path from 'node:path';
import { type Picture, parsePpm } from './picture.ts';
import type { QmpClient } from './qmp.ts';

/** A picture takes about 30 ms; a host with no processor to spare, some hundreds. */
const PICTURE_DEADLINE_MS = 10_000;
const PNG_SIGNATURE = Buffer.from('89504e470d0a1a0a', 'hex');
/** How every PNG ends: an empty IEND chunk and its checksum. */
const PNG_END = Buffer.from('0000000049454e44ae426082', 'hex');

/** The picture a machine shows, pointer included. Works whether it runs or is paused. */
export class Screen {
  readonly #qmp: QmpClient;
  readonly #folder: string;
  #turn: Promise<unknown> = Promise.resolve();

  /** @param folder on a memory file system; belongs to this machine alone */
  constructor(qmp: QmpClient, folder: string) {
    this.#qmp = qmp;
    this.#folder = folder;
  }

  /** @throws when QEMU does not answer or what it wrote is no whole picture */
  png(signal?: AbortSignal): Promise<Buffer> {
    return this.#next(async () => {
      const file = await this.#dump('png', signal);
      if (!file.subarray(0, 8).equals(PNG_SIGNATURE) || !file.subarray(-12).equals(PNG_END)) {
        throw new Error(`qemu wrote a PNG that is not whole (${file.length} bytes)`);
      }
      return file;
    });
  }

  /** Uncompressed: a few milliseconds instead of thirty. */
  picture(signal?: AbortSignal): Promise<Picture> {
    return this.#next(async () => parsePpm(await this.#dump('ppm', signal)));
  }

  async #dump(format: 'png' | 'ppm', signal?: AbortSignal): Promise<Buffer> {
    const filename = path.join(this.#folder, `screen.${format}`);
    await this.#qmp.execute(
      'screendump',
      { filename, format },
      { deadlineMs: PICTURE_DEADLINE_MS, ...(signal ? { signal } : {}) },
    );
    const file = await readFile(filename);
    // An uncompressed picture is 2.7 MB of memory.
    await unlink(filename);
    return file;
  }

  /** One at a time: the next one would write over the file while this one reads it. */
  #next<T>(take: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(take);
    this.#turn = turn.catch(() => undefined);
    return turn;
  }
}
