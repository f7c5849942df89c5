import { utimes } from 'node:fs/promises';
import path from 'node:path';
import { lockFile } from '../system/lock.ts';

/** Beside the area, not in it: the area is unmounted while these may still be open. */
export const templateUseFile = (area: string, key: string): string =>
  path.join(path.dirname(area), 'template-uses', key);

/**
 * The templates that this process makes clones of. Each is held by a lock that others share, so that nobody removes its files: the kernel
 * lets go of it when the process ends, however that goes. When one was last taken into use is the time of its file.
 */
export class TemplateUses implements AsyncDisposable {
  readonly #area: string;
  readonly #holds = new Map<string, Promise<AsyncDisposable>>();

  constructor(area: string) {
    this.#area = area;
  }

  /** Idempotent. Waits for who is removing it. @throws the signal's reason */
  async hold(key: string, signal: AbortSignal): Promise<void> {
    const file = templateUseFile(this.#area, key);
    const held = this.#holds.get(key) ?? lockFile(file, { shared: true, signal });
    this.#holds.set(key, held);
    await held.catch((error: unknown) => {
      this.#holds.delete(key);
      throw error;
    });
    const now = new Date();
    await utimes(file, now, now);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const held of this.#holds.values()) await (await held)[Symbol.asyncDispose]();
    this.#holds.clear();
  }
}
