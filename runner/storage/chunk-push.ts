import { createHash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import {
  CHUNK_BYTES,
  type Chunk,
  type ChunkedFile,
  type ChunkProgress,
  chunkKey,
  chunksFolder,
  compress,
  isZero,
} from './chunks.ts';
import { inParallel } from './parallel.ts';
import type { CallOptions, ObjectStore } from './s3.ts';

/** Two processors compress while a third chunk is on its way. Memory: as many chunks, twice. */
const PARALLEL = 3;

export interface PushOptions extends CallOptions {
  /** Sends what is there already, too: to mend what was damaged there. */
  again?: boolean;
  onProgress?: (progress: ChunkProgress) => void;
}

export interface Pushed {
  files: ChunkedFile[];
  /** Chunks that were sent, and those that lay there from an earlier time. */
  sent: number;
  kept: number;
  sentBytes: number;
}

/**
 * Puts files of a directory under a prefix, chunk by chunk; those that are there are not sent again, so that a push that
 * was cut short goes on where it was.
 * @throws as `ObjectStore`; an error when a file shrinks meanwhile
 */
export async function pushChunks(
  store: ObjectStore,
  prefix: string,
  directory: string,
  names: readonly string[],
  options: PushOptions = {},
): Promise<Pushed> {
  const { signal, again = false, onProgress } = options;
  const there = new Map<string, number>();
  if (!again) {
    for await (const { key, bytes } of store.list(chunksFolder(prefix), { signal })) there.set(key, bytes);
  }
  const pushed: Pushed = { files: [], sent: 0, kept: 0, sentBytes: 0 };
  const handles: FileHandle[] = [];
  try {
    const places: { handle: FileHandle; file: ChunkedFile; offset: number }[] = [];
    for (const name of names) {
      const handle = await open(path.join(directory, name), 'r');
      handles.push(handle);
      const file: ChunkedFile = { name, bytes: (await handle.stat()).size, chunks: [] };
      pushed.files.push(file);
      for (let offset = 0; offset < file.bytes; offset += CHUNK_BYTES) places.push({ handle, file, offset });
    }
    let done = 0;
    await inParallel(
      places,
      PARALLEL,
      async ({ handle, file, offset }, inner) => {
        const bytes = await readAt(handle, file, offset);
        if (!isZero(bytes)) {
          const chunk = await putChunk(store, prefix, bytes, offset, { there, pushed, signal: inner });
          file.chunks.push(chunk);
        }
        done += 1;
        onProgress?.({ fraction: done / places.length, sentBytes: pushed.sentBytes });
      },
      signal,
    );
  } finally {
    await Promise.all(handles.map((handle) => handle.close()));
  }
  for (const { chunks } of pushed.files) chunks.sort((a, b) => a.offset - b.offset);
  return pushed;
}

async function putChunk(
  store: ObjectStore,
  prefix: string,
  bytes: Buffer,
  offset: number,
  { there, pushed, signal }: { there: Map<string, number>; pushed: Pushed; signal: AbortSignal },
): Promise<Chunk> {
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const key = chunkKey(prefix, sha256);
  const chunk = { offset, bytes: bytes.byteLength, sha256 };
  const stored = there.get(key);
  if (stored !== undefined) {
    pushed.kept += 1;
    return { ...chunk, stored_bytes: stored };
  }
  const body = await compress(bytes);
  signal.throwIfAborted();
  await store.put(key, body, 'application/octet-stream', { signal });
  there.set(key, body.byteLength);
  pushed.sent += 1;
  pushed.sentBytes += body.byteLength;
  return { ...chunk, stored_bytes: body.byteLength };
}

async function readAt(handle: FileHandle, file: ChunkedFile, offset: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, file.bytes - offset));
  for (let filled = 0; filled < bytes.byteLength; ) {
    const { bytesRead } = await handle.read(bytes, filled, bytes.byteLength - filled, offset + filled);
    if (bytesRead === 0) throw new Error(`${file.name} ended at byte ${offset + filled}; it had ${file.bytes}`);
    filled += bytesRead;
  }
  return bytes;
}
