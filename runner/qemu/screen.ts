import { readFile, unlink } from 'node:fs/promises';
import path from 'node:path';
import { type Picture, parsePpm } from './picture.ts';
import { encodePng } from './png.ts';
import type { QmpClient } from './qmp.ts';
import { Turns } from './turns.ts';

/** A picture takes some milliseconds; a host with no processor to spare, some hundreds. */
const PICTURE_DEADLINE_MS = 10_000;

/** The picture a machine shows, pointer included. Works whether it runs or is paused. */
export class Screen {
  readonly #qmp: QmpClient;
  readonly #file: string;
  readonly #turns = new Turns();

  /** @param folder on a memory file system; belongs to this machine alone */
  constructor(qmp: QmpClient, folder: string) {
    this.#qmp = qmp;
    this.#file = path.join(folder, 'screen.ppm');
  }

  /** @throws when QEMU does not answer or what it wrote is no whole picture */
  async png(signal?: AbortSignal): Promise<Buffer> {
    return encodePng(await this.picture(signal));
  }

  /** One at a time: the next one would write over the file while this one reads it. */
  picture(signal?: AbortSignal): Promise<Picture> {
    return this.#turns.take(() => this.#dump(signal));
  }

  async #dump(signal?: AbortSignal): Promise<Picture> {
    await this.#qmp.execute(
      'screendump',
      { filename: this.#file, format: 'ppm' },
      { deadlineMs: PICTURE_DEADLINE_MS, ...(signal ? { signal } : {}) },
    );
    const file = await readFile(this.#file);
    // 2.7 MB of memory each, for as long as it is there.
    await unlink(this.#file);
    return parsePpm(file);
  }
}
