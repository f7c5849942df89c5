import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { type Chunk, type ChunkedFile, type ChunkProgress, chunkKey, decompress, isZero } from './chunks.ts';
import { ObjectDamaged, ObjectMissing, StorageFull } from './errors.ts';
import { inParallel } from './parallel.ts';
import type { CallOptions, ObjectStore } from './s3.ts';

/** Memory: as many chunks, twice. More only waits for the disk. */
const PARALLEL = 4;
/** Zeros of this length stay holes within a chunk, too. */
const HOLE_BYTES = 32 * 1024;

export interface PullOptions extends CallOptions {
  onProgress?: (progress: ChunkProgress) => void;
}

/**
 * Writes files, as `pushChunks` listed them, into a directory that has none of them; holes stay holes, every chunk is
 * checked. What it has written when it fails is the caller's to remove.
 * @throws ObjectDamaged that names the chunk and its place in the file; StorageFull; as `ObjectStore`
 */
export async function pullChunks(
  store: ObjectStore,
  prefix: string,
  files: readonly ChunkedFile[],
  directory: string,
  options: PullOptions = {},
): Promise<void> {
  const handles: FileHandle[] = [];
  const total = files.flatMap(({ chunks }) => chunks).reduce((sum, { stored_bytes }) => sum + stored_bytes, 0);
  try {
    const wanted: { handle: FileHandle; file: ChunkedFile; chunk: Chunk }[] = [];
    for (const file of files) {
      const handle = await open(path.join(directory, file.name), 'wx');
      handles.push(handle);
      await handle.truncate(file.bytes);
      for (const chunk of file.chunks) wanted.push({ handle, file, chunk });
    }
    let done = 0;
    await inParallel(
      wanted,
      PARALLEL,
      async ({ handle, file, chunk }, signal) => {
        const bytes = await getChunk(store, prefix, file, chunk, signal);
        await writeSparse(handle, bytes, chunk.offset);
        done += chunk.stored_bytes;
        options.onProgress?.({ fraction: done / total, sentBytes: done });
      },
      options.signal,
    );
  } catch (error) {
    throw namedIfFull(error, directory);
  } finally {
    await Promise.all(handles.map((handle) => handle.close()));
  }
}

async function getChunk(
  store: ObjectStore,
  prefix: string,
  { name, bytes: fileBytes }: ChunkedFile,
  { offset, bytes, sha256, stored_bytes }: Chunk,
  signal: AbortSignal,
): Promise<Buffer> {
  const key = chunkKey(prefix, sha256);
  const damaged = (why: string, cause?: unknown): ObjectDamaged =>
    new ObjectDamaged(`${store.url(key)} (${name}, bytes ${offset} to ${offset + bytes}) ${why}`, { cause });
  if (offset + bytes > fileBytes) throw damaged(`lies outside of the file, which has ${fileBytes}`);
  let stored: Buffer;
  try {
    stored = await store.get(key, stored_bytes, { signal });
  } catch (error) {
    if (error instanceof ObjectMissing) throw damaged('is not there', error);
    throw error instanceof ObjectDamaged ? damaged(`is damaged: ${error.message}`, error) : error;
  }
  const plain = await decompress(stored, bytes).catch((error: Error) => {
    throw damaged(`is damaged: ${error.message}`, error);
  });
  const found = createHash('sha256').update(plain).digest('hex');
  if (plain.byteLength !== bytes || found !== sha256) {
    throw damaged(`is damaged: it holds ${plain.byteLength} bytes of sha256 ${found}`);
  }
  return plain;
}

/** Writes what is not zero; the file has zeros already. */
async function writeSparse(handle: FileHandle, bytes: Buffer, offset: number): Promise<void> {
  let at = 0;
  while (at < bytes.byteLength) {
    const from = at;
    while (at < bytes.byteLength && !isZero(bytes.subarray(at, at + HOLE_BYTES))) at += HOLE_BYTES;
    const until = Math.min(at, bytes.byteLength);
    for (let written = from; written < until; ) {
      const { bytesWritten } = await handle.write(bytes, written, until - written, offset + written);
      written += bytesWritten;
    }
    at += HOLE_BYTES;
  }
}

/** Writes through an open file do not say which. */
function namedIfFull(error: unknown, directory: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error;
  return new StorageFull(
    `no room on disk for ${directory} (${code}): free some, or set GYMBUS_CACHE to a folder elsewhere`,
    {
      cause: error,
    },
  );
}
