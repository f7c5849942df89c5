import { mkdir, open, readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { attemptFiles, objectKeys } from '../../schemas/index.ts';
import { AttemptSpool } from './attempt-spool.ts';
import { asStorageFull } from './errors.ts';
import { SPOOL_RECORD, type SpoolRecord } from './spool-record.ts';

/** Whose attempt it is. */
export interface AttemptAddress {
  batch: string;
  job: string;
  attempt: string;
}

/**
 * Where a runner keeps what is not in S3 yet: `<root>/<attempt>/`, the same names as in the bucket. The folder is this
 * runner's alone. Everything is here before it is in flight; `bytes()` is what the disk holds for attempts under way.
 */
export class Spool {
  readonly root: string;
  readonly #open = new Map<string, AttemptSpool>();

  private constructor(root: string) {
    this.root = root;
  }

  /** Makes the folder if need be. */
  static async open(root: string): Promise<Spool> {
    await mkdir(root, { recursive: true, mode: 0o700 });
    return new Spool(root);
  }

  /**
   * Begins the folder of an attempt with its ownership record. The record and the folder are synced to disk, the only
   * thing here that is: after a power cut a folder that does not say whose it is could not even be shown to anybody.
   * @throws StorageFull; EEXIST when the attempt was begun before
   */
  async begin(address: AttemptAddress): Promise<AttemptSpool> {
    const folder = path.join(this.root, address.attempt);
    const record: SpoolRecord = {
      schema: 'gymbus.spool.v1',
      batch_id: address.batch,
      job_id: address.job,
      attempt: address.attempt,
      prefix: objectKeys.attempt(address.batch, address.job, address.attempt),
    };
    try {
      await mkdir(folder, { mode: 0o700 });
      const handle = await open(path.join(folder, SPOOL_RECORD), 'wx', 0o600);
      try {
        await handle.writeFile(JSON.stringify(record));
        await handle.sync();
      } finally {
        await handle.close();
      }
      await syncFolder(folder);
      await syncFolder(this.root);
      await mkdir(path.join(folder, path.dirname(attemptFiles.serial)), { mode: 0o700 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') await rm(folder, { recursive: true, force: true });
      throw asStorageFull(error, folder);
    }
    const spool = new AttemptSpool(folder, record, () => this.#open.delete(address.attempt));
    this.#open.set(address.attempt, spool);
    return spool;
  }

  /** Bytes on disk of the attempts under way. */
  bytes(): number {
    let sum = 0;
    for (const spool of this.#open.values()) sum += spool.bytes();
    return sum;
  }

  /** Folders that no attempt of this process began: what an earlier one left. */
  async leftovers(): Promise<string[]> {
    const names = await readdir(this.root);
    return names.filter((name) => !this.#open.has(name)).map((name) => path.join(this.root, name));
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** The files under a folder, without those being written: path and length. */
export async function spooledFiles(folder: string): Promise<{ name: string; path: string; bytes: number }[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = [];
  for (const entry of entries) {
    if (!entry.isFile() || entry.name.startsWith('.')) continue;
    const file = path.join(entry.parentPath, entry.name);
    const name = path.relative(folder, file);
    if (name !== SPOOL_RECORD) files.push({ name, path: file, bytes: (await stat(file)).size });
  }
  return files.sort((a, b) => (a.name < b.name ? -1 : 1));
}
