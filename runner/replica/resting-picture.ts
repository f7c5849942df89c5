import type { Picture } from '../qemu/picture.ts';

/** A picture this young, of a desktop at rest to which nothing was done since, is as good as a new one. */
const FRESH_MS = 50;

/**
 * The picture by which a desktop was seen to be at rest, for whoever wants one right after: taking another costs some milliseconds of
 * QEMU, in which its guest stands still.
 */
export class RestingPicture {
  #kept: { picture: Picture; atMs: number } | null = null;

  /** @param atMs on the clock of `performance.now()`, as all times here */
  keep(picture: Picture, atMs = performance.now()): void {
    this.#kept = { picture, atMs };
  }

  /** To be called before anything is done to the desktop. */
  forget(): void {
    this.#kept = null;
  }

  /** Once, and only while it is fresh: it is megabytes. */
  take(nowMs = performance.now()): Picture | null {
    const kept = this.#kept;
    this.#kept = null;
    return kept !== null && nowMs - kept.atMs < FRESH_MS ? kept.picture : null;
  }
}
