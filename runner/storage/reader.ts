import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { attemptFiles, Manifest, objectKeys, Step, type StoredObject } from '../../schemas/index.ts';
import { asStorageFull, ObjectDamaged, ObjectMissing } from './errors.ts';
import { inParallel } from './parallel.ts';
import type { CallOptions, ObjectStore } from './s3.ts';

/** An attempt as the bucket has it. */
export interface AttemptInfo {
  attempt: string;
  /** Folder key, ending in a slash. */
  prefix: string;
  /** It has a manifest. */
  finished: boolean;
  objects: number;
  bytes: number;
  /** When its last object was put. */
  modifiedAt: Date | null;
}

export interface DownloadProgress {
  files: number;
  filesTotal: number;
  bytes: number;
  bytesTotal: number;
}

export interface DownloadReport extends DownloadProgress {
  finished: boolean;
  /** Files that were there already, with the right hash. */
  kept: number;
  /** Files whose hash was compared with what the manifest or the trajectory says: all of them when it is finished. */
  verified: number;
}

interface Wanted {
  key: string;
  name: string;
  bytes: number;
  sha256: string | null;
}

const PARALLEL = 4;
/** A manifest of 1,000 steps is 300 KiB. */
const MOST_MANIFEST_BYTES = 16 << 20;
const MOST_TRAJECTORY_BYTES = 512 << 20;

/** The attempts of a job in the order they were made, unfinished ones included. */
export async function listAttempts(
  store: ObjectStore,
  batch: string,
  job: string,
  options: CallOptions = {},
): Promise<AttemptInfo[]> {
  const attempts: AttemptInfo[] = [];
  for await (const attempt of store.folders(`${objectKeys.job(batch, job)}attempts/`, options)) {
    const prefix = objectKeys.attempt(batch, job, attempt);
    const info: AttemptInfo = { attempt, prefix, finished: false, objects: 0, bytes: 0, modifiedAt: null };
    for await (const object of store.list(prefix, options)) {
      info.objects++;
      info.bytes += object.bytes;
      info.finished ||= object.key === prefix + attemptFiles.manifest;
      if (object.modifiedAt && object.modifiedAt > (info.modifiedAt ?? 0)) info.modifiedAt = object.modifiedAt;
    }
    attempts.push(info);
  }
  return attempts.sort(
    (a, b) => Number.parseInt(a.attempt, 10) - Number.parseInt(b.attempt, 10) || (a.attempt < b.attempt ? -1 : 1),
  );
}

/** The manifest of an attempt; null when it has none: it is unfinished. @throws ObjectDamaged when it cannot be read */
export async function readManifest(
  store: ObjectStore,
  prefix: string,
  options: CallOptions = {},
): Promise<Manifest | null> {
  const key = prefix + attemptFiles.manifest;
  try {
    const bytes = await store.get(key, MOST_MANIFEST_BYTES, options);
    return Manifest.parse(JSON.parse(bytes.toString('utf8')));
  } catch (error) {
    if (error instanceof ObjectMissing) return null;
    if (error instanceof SyntaxError || (error as Error).name === 'ZodError') {
      throw new ObjectDamaged(`${store.url(key)} is no manifest: ${(error as Error).message}`, { cause: error });
    }
    throw error;
  }
}

/**
 * Downloads an attempt into a directory, by the names it has in the bucket. Each file appears whole or not at all, the
 * manifest last; files that are there with the right hash are kept, so that a download that broke off is resumed.
 * Of an unfinished attempt what there is comes down, checked against the trajectory's own lines.
 * @param prefix folder key of the attempt @throws ObjectDamaged names the object whose bytes are not what was recorded
 */
export async function downloadAttempt(
  store: ObjectStore,
  prefix: string,
  directory: string,
  options: CallOptions & { onProgress?: (progress: DownloadProgress) => void } = {},
): Promise<DownloadReport> {
  const manifest = await readManifest(store, prefix, options);
  const wanted = manifest
    ? manifest.objects.map((object) => want(prefix, object))
    : await recorded(store, prefix, options);
  if (wanted.length === 0) throw new ObjectMissing(prefix, `there is nothing under ${store.url(prefix)}`);
  const report: DownloadReport = {
    finished: manifest !== null,
    kept: 0,
    verified: wanted.filter(({ sha256 }) => sha256 !== null).length,
    files: 0,
    filesTotal: wanted.length,
    bytes: 0,
    bytesTotal: wanted.reduce((sum, { bytes }) => sum + bytes, 0),
  };
  const fetchOne = async (object: Wanted, signal: AbortSignal): Promise<void> => {
    if (await fetchFile(store, object, directory, { ...options, signal })) report.kept++;
    report.files++;
    report.bytes += object.bytes;
    options.onProgress?.(report);
  };
  await inParallel(wanted, PARALLEL, fetchOne, options.signal);
  if (manifest) await writeWhole(path.join(directory, attemptFiles.manifest), `${JSON.stringify(manifest, null, 2)}\n`);
  return report;
}

/** What an unfinished attempt has, with the hashes that its trajectory names. */
async function recorded(store: ObjectStore, prefix: string, options: CallOptions): Promise<Wanted[]> {
  const found: Wanted[] = [];
  for await (const { key, bytes } of store.list(prefix, options))
    found.push(want(prefix, { key, bytes, sha256: null }));
  if (!found.some(({ name }) => name === attemptFiles.trajectory)) return found;
  const lines = await store.get(prefix + attemptFiles.trajectory, MOST_TRAJECTORY_BYTES, options);
  const named = new Map<string, StoredObject>();
  for (const line of lines.toString('utf8').split('\n').filter(Boolean)) {
    const { screenshot, a11y_tree } = Step.parse(JSON.parse(line)).observation;
    for (const object of [screenshot, a11y_tree]) if (object) named.set(object.key, object);
  }
  return found.map((object) => ({ ...object, sha256: named.get(object.key)?.sha256 ?? null }));
}

/** @throws ObjectDamaged for a key that would be written outside the directory */
function want(prefix: string, object: { key: string; bytes: number; sha256: string | null }): Wanted {
  const name = object.key.startsWith(prefix) ? object.key.slice(prefix.length) : '';
  if (
    name === '' ||
    name.split('/').some((part) => part === '' || part === '.' || part === '..') ||
    name.includes('\0')
  ) {
    throw new ObjectDamaged(`the attempt lists ${JSON.stringify(object.key)}, which is not one of its own files`);
  }
  return { key: object.key, name, bytes: object.bytes, sha256: object.sha256 };
}

/** @returns whether the file was there already */
async function fetchFile(
  store: ObjectStore,
  object: Wanted,
  directory: string,
  options: CallOptions,
): Promise<boolean> {
  const file = path.join(directory, object.name);
  if (object.sha256 !== null && (await hashOf(file, object.bytes)) === object.sha256) return true;
  const temporary = `${file}.part`;
  try {
    await mkdir(path.dirname(file), { recursive: true });
    const got = await store.download(object.key, temporary, options);
    if (object.sha256 !== null && (got.sha256 !== object.sha256 || got.bytes !== object.bytes)) {
      throw new ObjectDamaged(
        `${store.url(object.key)} has ${got.bytes} bytes of sha256 ${got.sha256}, recorded were ${object.bytes} of ${object.sha256}`,
      );
    }
    await rename(temporary, file);
    return false;
  } catch (error) {
    await rm(temporary, { force: true });
    throw asStorageFull(error, file);
  }
}

async function hashOf(file: string, bytes: number): Promise<string | null> {
  const found = await stat(file).catch(() => null);
  if (!found?.isFile() || found.size !== bytes) return null;
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}

async function writeWhole(file: string, text: string): Promise<void> {
  const temporary = `${file}.part`;
  await writeFile(temporary, text);
  await rename(temporary, file);
}
