import { constants } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import path from 'node:path';
import { type Picture, parsePpm } from './picture.ts';
import { encodePng } from './png.ts';
import type { QmpClient } from './qmp.ts';
import { scratch } from './scratch.ts';
import { Turns } from './turns.ts';

/** A picture takes some milliseconds; a host with no processor to spare, some hundreds. */
const PICTURE_DEADLINE_MS = 10_000;

/** 4096 x 4096 pixels, a byte for each colour, and a header. */
const MOST_BYTES = 48 * 2 ** 20 + 64;

/** A picture whose memory is used again once it is disposed of; kept for as long as it is wanted when it is not. */
export type ScreenPicture = Picture & Disposable;

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
    using picture = await this.picture(signal);
    return await encodePng(picture);
  }

  /** One at a time: the next one would write over the file while this one reads it. */
  picture(signal?: AbortSignal): Promise<ScreenPicture> {
    return this.#turns.take(() => this.#dump(signal));
  }

  async #dump(signal?: AbortSignal): Promise<ScreenPicture> {
    await this.#qmp.execute(
      'screendump',
      { filename: this.#file, format: 'ppm' },
      { deadlineMs: PICTURE_DEADLINE_MS, ...(signal ? { signal } : {}) },
    );
    const file = await readWhole(this.#file);
    // 2.7 MB of memory each, for as long as it is there.
    await unlink(this.#file);
    return disposable(parsePpm(file), file);
  }
}

/** What QEMU wrote is as little to be trusted as its guest: no link to a file of the host's, no pipe, nothing that fills our memory. */
async function readWhole(path: string): Promise<Buffer> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  const stat = await file.stat();
  const { size } = stat;
  if (!stat.isFile() || size > MOST_BYTES) throw new Error(`the picture is no file of at most ${MOST_BYTES} bytes`);
  const content = scratch.take(size);
  const { bytesRead } = await file.read(content, 0, size, 0);
  return content.subarray(0, bytesRead);
}

function disposable(picture: Picture, memory: Buffer): ScreenPicture {
  let held = true;
  const dispose = (): void => {
    // Given back twice, it would be taken by two.
    if (held) scratch.give(memory);
    held = false;
  };
  return { ...picture, [Symbol.dispose]: dispose };
}
