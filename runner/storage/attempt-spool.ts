import { createHash } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { StoredObject } from '../../schemas/index.ts';
import { AppendFile } from './append-file.ts';
import { contentTypeOf } from './content-type.ts';
import { asStorageFull } from './errors.ts';
import type { FileBody } from './s3.ts';
import type { SpoolRecord } from './spool-record.ts';

/** An object as the manifest lists it. */
export interface SpooledObject extends StoredObject {
  content_type: string;
}

/** `whole` files never change; `growing` ones get longer. */
export type FileKind = 'whole' | 'growing';
type Entry = { contentType: string } & ({ kind: 'whole'; body: FileBody } | { kind: 'growing'; file: AppendFile });

/** Told when a file is there or has grown. */
export type SpoolListener = (name: string, kind: FileKind) => void;

/**
 * One attempt's folder on disk. Written by its recorder alone, read by the uploader. A file appears under its name whole
 * or not at all (temporary name, then rename); growing files grow by whole writes. None is synced, as in `AppendFile`.
 */
export class AttemptSpool {
  readonly folder: string;
  readonly record: SpoolRecord;
  readonly #entries = new Map<string, Entry>();
  readonly #names = new Set<string>();
  readonly #growing = new Map<string, Promise<AppendFile>>();
  readonly #pending = new Set<Promise<unknown>>();
  readonly #onRemoved: () => void;
  #listener: SpoolListener = () => {};
  #wholeBytes = 0;
  #sealed = false;
  #removed: Promise<void> | undefined;

  constructor(folder: string, record: SpoolRecord, onRemoved: () => void) {
    this.folder = folder;
    this.record = record;
    this.#onRemoved = onRemoved;
  }

  get attempt(): string {
    return this.record.attempt;
  }

  /** The one that wants to know of files; it is told of those already there. */
  listen(listener: SpoolListener): void {
    this.#listener = listener;
    for (const [name, entry] of this.#entries) listener(name, entry.kind);
  }

  /**
   * Writes a file that will not change.
   * @param name relative, as in `attemptFiles` @returns what the trajectory and the manifest say of it
   * @throws StorageFull; an error when the name is taken or the attempt is sealed
   */
  async writeObject(name: string, bytes: Uint8Array, contentType = contentTypeOf(name)): Promise<SpooledObject> {
    this.#refuseSealed(name);
    if (this.#names.has(name)) throw new Error(`${name} of attempt ${this.attempt} is written already`);
    this.#names.add(name);
    try {
      const body = await this.#track(this.#write(name, bytes));
      this.#entries.set(name, { kind: 'whole', contentType, body });
      this.#wholeBytes += body.bytes;
      this.#listener(name, 'whole');
      return { key: this.keyOf(name), bytes: body.bytes, sha256: body.sha256, content_type: contentType };
    } catch (error) {
      this.#names.delete(name);
      throw error;
    }
  }

  /** Adds to a growing file, made at its first piece. @throws StorageFull; an error when the attempt is sealed */
  async append(name: string, data: string): Promise<void> {
    this.#refuseSealed(name);
    await this.#track(this.#growingFile(name).then((file) => file.append(Buffer.from(data))));
    this.#listener(name, 'growing');
  }

  /** From now on nothing is added: what is listed stays as it is. Waits for writes under way. */
  async seal(): Promise<void> {
    this.#sealed = true;
    await Promise.allSettled(this.#pending);
  }

  /** Writes the one file that comes after the seal: the manifest, which lists all others and not itself. */
  writeLast(name: string, bytes: Uint8Array): Promise<FileBody> {
    if (!this.#sealed) throw new Error(`${name} of attempt ${this.attempt} comes last: seal the attempt first`);
    return this.#track(this.#write(name, bytes));
  }

  /** What there is of a file now. @throws when there is no such file */
  body(name: string): FileBody & { contentType: string } {
    const entry = this.#entries.get(name);
    if (!entry) throw new Error(`${name} is not in ${this.folder}`);
    return { ...(entry.kind === 'whole' ? entry.body : entry.file.snapshot()), contentType: entry.contentType };
  }

  /** Length of a file now; 0 when there is none. */
  lengthOf(name: string): number {
    const entry = this.#entries.get(name);
    if (!entry) return 0;
    return entry.kind === 'whole' ? entry.body.bytes : entry.file.bytes;
  }

  keyOf(name: string): string {
    return `${this.record.prefix}${name}`;
  }

  /** Everything there is, in the order of keys. */
  objects(): SpooledObject[] {
    return [...this.#entries.keys()].sort().map((name) => {
      const { bytes, sha256, contentType } = this.body(name);
      return { key: this.keyOf(name), bytes, sha256, content_type: contentType };
    });
  }

  /** On disk, all files together. */
  bytes(): number {
    let sum = this.#wholeBytes;
    for (const name of this.#growing.keys()) sum += this.lengthOf(name);
    return sum;
  }

  /** Deletes the folder; idempotent. */
  remove(): Promise<void> {
    this.#removed ??= this.#remove();
    return this.#removed;
  }

  async #remove(): Promise<void> {
    try {
      await this.seal();
      await Promise.allSettled([...this.#growing.values()].map(async (file) => (await file)[Symbol.asyncDispose]()));
      await rm(this.folder, { recursive: true, force: true });
    } finally {
      this.#onRemoved();
    }
  }

  async #write(name: string, bytes: Uint8Array): Promise<FileBody> {
    const file = path.join(this.folder, name);
    const temporary = path.join(this.folder, `.writing-${name.replaceAll('/', '-')}`);
    try {
      await writeFile(temporary, bytes, { mode: 0o600 });
      await rename(temporary, file);
    } catch (error) {
      await rm(temporary, { force: true });
      throw asStorageFull(error, file);
    }
    return { path: file, bytes: bytes.byteLength, sha256: createHash('sha256').update(bytes).digest('hex') };
  }

  #growingFile(name: string): Promise<AppendFile> {
    const existing = this.#growing.get(name);
    if (existing) return existing;
    if (this.#names.has(name)) throw new Error(`${name} of attempt ${this.attempt} is a whole file, it cannot grow`);
    this.#names.add(name);
    const creating = AppendFile.create(path.join(this.folder, name)).then(
      (file) => {
        this.#entries.set(name, { kind: 'growing', contentType: contentTypeOf(name), file });
        return file;
      },
      (error) => {
        this.#growing.delete(name);
        this.#names.delete(name);
        throw error;
      },
    );
    this.#growing.set(name, creating);
    return creating;
  }

  #track<T>(work: Promise<T>): Promise<T> {
    this.#pending.add(work);
    const done = (): void => void this.#pending.delete(work);
    work.then(done, done);
    return work;
  }

  #refuseSealed(name: string): void {
    if (this.#sealed) throw new Error(`${name}: attempt ${this.attempt} is sealed, nothing may be added`);
  }
}
