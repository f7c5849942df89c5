import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { asStorageFull } from './errors.ts';
import type { FileBody } from './s3.ts';

/**
 * A file that only grows, in whole writes: one that fails is taken back, so that what is there is always hashed.
 * Not synced to disk: it has to outlive the process, not the machine, for a job whose host died is played again.
 */
export class AppendFile implements AsyncDisposable {
  readonly path: string;
  readonly #handle: FileHandle;
  readonly #hash = createHash('sha256');
  #bytes = 0;
  #last: Promise<void> = Promise.resolve();

  private constructor(path: string, handle: FileHandle) {
    this.path = path;
    this.#handle = handle;
  }

  /** @throws when the file exists: one writer each */
  static async create(path: string): Promise<AppendFile> {
    try {
      return new AppendFile(path, await open(path, 'wx', 0o600));
    } catch (error) {
      throw asStorageFull(error, path);
    }
  }

  /** Writes `data` after everything before it, whole or not at all. @throws StorageFull */
  append(data: Uint8Array): Promise<void> {
    const written = this.#last.then(() => this.#write(data));
    this.#last = written.catch(() => {});
    return written;
  }

  async #write(data: Uint8Array): Promise<void> {
    try {
      for (let done = 0; done < data.byteLength; ) {
        done += (await this.#handle.write(data, done, data.byteLength - done, this.#bytes + done)).bytesWritten;
      }
    } catch (error) {
      await this.#handle.truncate(this.#bytes);
      throw asStorageFull(error, this.path);
    }
    this.#hash.update(data);
    this.#bytes += data.byteLength;
  }

  /** What is there now; later writes go behind it. */
  snapshot(): FileBody {
    return { path: this.path, bytes: this.#bytes, sha256: this.#hash.copy().digest('hex') };
  }

  get bytes(): number {
    return this.#bytes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#last;
    await this.#handle.close();
  }
}
