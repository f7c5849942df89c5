import type { ScreenPicture } from '../qemu/screen.ts';

/** A picture this young, of a desktop at rest to which nothing was done since, is as good as a new one. */
const FRESH_MS = 50;

/**
 * The picture by which a desktop was seen to be at rest, for whoever wants one right after: taking another costs some milliseconds of
 * QEMU, in which its guest stands still.
 */
export class RestingPicture {
  #kept: { picture: ScreenPicture; atMs: number } | null = null;

  /** @param atMs on the clock of `performance.now()`, as all times here */
  keep(picture: ScreenPicture, atMs = performance.now()): void {
    this.forget();
    this.#kept = { picture, atMs };
  }

  /** To be called before anything is done to the desktop. */
  forget(): void {
    this.#kept?.picture[Symbol.dispose]();
    this.#kept = null;
  }

  /** Once, and only while it is fresh: it is megabytes. Whoever takes it disposes of it. */
  take(nowMs = performance.now()): ScreenPicture | null {
    const kept = this.#kept;
    if (kept === null || nowMs - kept.atMs >= FRESH_MS) {
      this.forget();
      return null;
    }
    this.#kept = null;
    return kept.picture;
  }
}
