import { brotliCompress, brotliDecompress, constants } from 'node:zlib';
import { z } from 'zod';

/**
 * Large files in the bucket: cut into chunks, each an object named by the sha256 of its bytes, compressed. Chunks of
 * zeros alone are no objects: a disk that is mostly holes is neither sent nor written whole.
 *
 *   <prefix>chunks/<sha256>
 *
 * Whoever puts them lists them in a record of its own, written last.
 */

/** Of a file. With those under way at once it bounds memory; a hole that is larger costs nothing. */
export const CHUNK_BYTES = 16 * 2 ** 20;
/** Of one that another version made. */
const MOST_CHUNK_BYTES = 64 * 2 ** 20;

const Chunk = z.object({
  /** Where it lies in the file. */
  offset: z.int().nonnegative(),
  bytes: z.int().positive().max(MOST_CHUNK_BYTES),
  /** Of these bytes, hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  /** Of the object, compressed. */
  stored_bytes: z.int().positive(),
});
export type Chunk = z.infer<typeof Chunk>;

/** A file as it lies in the bucket; what no chunk covers is zeros. */
export const ChunkedFile = z.object({
  name: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/),
  bytes: z.int().nonnegative(),
  chunks: z.array(Chunk),
});
export type ChunkedFile = z.infer<typeof ChunkedFile>;

export interface ChunkProgress {
  /** 0 to 1. */
  fraction: number;
  /** Bytes that went over the wire. */
  sentBytes: number;
}

export const chunksFolder = (prefix: string): string => `${prefix}chunks/`;
export const chunkKey = (prefix: string, sha256: string): string => `${chunksFolder(prefix)}${sha256}`;

/**
 * Of a guest's disk this quality leaves 22 % in 0.14 s for 16 MiB; gzip leaves 26 % in the same time, and brotli one
 * step up gains half a per cent for twice the time.
 */
const QUALITY = 3;

export function compress(bytes: Buffer): Promise<Buffer> {
  const params = { [constants.BROTLI_PARAM_QUALITY]: QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.byteLength };
  return new Promise((resolve, reject) =>
    brotliCompress(bytes, { params }, (error, result) => (error ? reject(error) : resolve(result))),
  );
}

/** @throws when it is no such stream, or holds more than `bytes` */
export function decompress(stored: Buffer, bytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) =>
    brotliDecompress(stored, { maxOutputLength: bytes }, (error, result) => (error ? reject(error) : resolve(result))),
  );
}

const ZEROS = Buffer.alloc(CHUNK_BYTES);

export const isZero = (bytes: Buffer): boolean => {
  for (let at = 0; at < bytes.byteLength; at += ZEROS.byteLength) {
    const part = bytes.subarray(at, at + ZEROS.byteLength);
    if (!part.equals(ZEROS.subarray(0, part.byteLength))) return false;
  }
  return true;
};
