import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import { attemptFiles } from '../../schemas/index.ts';
import { contentTypeOf } from './content-type.ts';
import { deadline } from './deadline.ts';
import { inParallel } from './parallel.ts';
import type { FileBody, ObjectStore } from './s3.ts';
import { type Spool, spooledFiles } from './spool.ts';
import { SPOOL_RECORD, SpoolRecord } from './spool-record.ts';

export interface LeftoverReport {
  attempt: string;
  /** Files put now; what was in S3 already is not put again. */
  uploaded: number;
  /** All it had is in S3. */
  whole: boolean;
}

/** A job does not wait longer than this for what a dead predecessor recorded. */
const BUDGET_MS = 60_000;
const PARALLEL = 8;

/**
 * What an earlier process of this runner left is uploaded as unfinished attempts, for at most `budgetMs` in all, then
 * deleted. No manifest and no outcome comes of it: the jobs are played again, by whoever has them now.
 * Call it before the first attempt, with the runner's data directory locked.
 */
export async function uploadLeftovers(
  spool: Spool,
  store: ObjectStore,
  log: Logger,
  options: { signal: AbortSignal; budgetMs?: number },
): Promise<LeftoverReport[]> {
  const budgetMs = options.budgetMs ?? BUDGET_MS;
  const limit = deadline(options.signal, budgetMs, () => new Error(`not done within ${budgetMs} ms`));
  const reports: LeftoverReport[] = [];
  try {
    for (const folder of await spool.leftovers()) {
      const report = { attempt: path.basename(folder), uploaded: 0, whole: false };
      try {
        await uploadFolder(folder, store, limit.signal, () => report.uploaded++);
        report.whole = true;
      } catch (error) {
        options.signal.throwIfAborted();
        log.warn({ err: error, folder }, 'an unfinished attempt could not be uploaded; its local copy is deleted');
      }
      await rm(folder, { recursive: true, force: true });
      reports.push(report);
    }
  } finally {
    limit.clear();
  }
  if (reports.length > 0) log.info({ attempts: reports }, 'unfinished attempts of an earlier run are cleared away');
  return reports;
}

async function uploadFolder(folder: string, store: ObjectStore, signal: AbortSignal, onPut: () => void): Promise<void> {
  signal.throwIfAborted();
  const record = SpoolRecord.parse(JSON.parse(await readFile(path.join(folder, SPOOL_RECORD), 'utf8')));
  const patient = { signal, patienceMs: Number.POSITIVE_INFINITY };
  const there = new Map<string, number>();
  for await (const { key, bytes } of store.list(record.prefix, patient)) there.set(key, bytes);
  // Its last file is there, so all others are, as the manifest lists them.
  if (there.has(record.prefix + attemptFiles.manifest)) return;
  const missing = (await spooledFiles(folder)).filter(
    ({ name, bytes }) => name !== attemptFiles.manifest && bytes > 0 && there.get(record.prefix + name) !== bytes,
  );
  const put = async ({ name, path: file }: (typeof missing)[number], stop: AbortSignal): Promise<void> => {
    await store.putFile(record.prefix + name, await hashFile(file), contentTypeOf(name), { ...patient, signal: stop });
    onPut();
  };
  await inParallel(missing, PARALLEL, put, signal);
}

async function hashFile(file: string): Promise<FileBody> {
  const hash = createHash('sha256');
  let bytes = 0;
  await pipeline(createReadStream(file), async (source) => {
    for await (const chunk of source) {
      hash.update(chunk as Buffer);
      bytes += (chunk as Buffer).byteLength;
    }
  });
  return { path: file, bytes, sha256: hash.digest('hex') };
}
