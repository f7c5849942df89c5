import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { Transform } from 'node:stream';
import { AbortMultipartUploadCommand, type S3Client } from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { ObjectDamaged } from './errors.ts';
import { createS3Client, type S3Config } from './s3-client.ts';

/** The first `bytes` of a file, and their hash. The file may grow behind them. */
export interface FileBody {
  path: string;
  bytes: number;
  /** Hexadecimal. */
  sha256: string;
}

const PART_BYTES = 8 << 20;
const PARTS_AT_ONCE = 2;
const TRIES_OF_A_PART = 5;
/** Throwing the parts away is good manners; a server that does not answer is not waited for. */
const CLEAR_MS = 5_000;

/**
 * Stores a large file in parts, each with its own SHA-256, and completes it only when the whole was what was hashed.
 * However it fails, there is no object, and the parts are thrown away. Memory: two parts.
 */
export async function putInParts(
  config: S3Config,
  key: string,
  file: FileBody,
  contentType: string,
  signal: AbortSignal,
): Promise<void> {
  const client = abortable(createS3Client(config, TRIES_OF_A_PART), signal);
  const source = createReadStream(file.path, { end: file.bytes - 1, highWaterMark: 1 << 20 });
  const hash = createHash('sha256');
  const hashed = new Transform({
    transform: (chunk: Buffer, _, done) => {
      hash.update(chunk);
      done(null, chunk);
    },
    flush: (done) => done(hash.digest('hex') === file.sha256 ? null : shortened(file, source.bytesRead)),
  });
  source.once('error', (error) => hashed.destroy(error));
  const upload = new Upload({
    client,
    params: {
      Bucket: config.bucket,
      Key: key,
      Body: source.pipe(hashed),
      ContentType: contentType,
      ChecksumAlgorithm: 'SHA256',
    },
    partSize: PART_BYTES,
    queueSize: PARTS_AT_ONCE,
    leavePartsOnError: false,
  });
  try {
    signal.throwIfAborted();
    await upload.done();
  } finally {
    source.destroy();
    hashed.destroy();
    client.destroy();
  }
}

/**
 * The library's own `abort` leaves parts in flight, and returns before it has cleared up. So each request ends with
 * `signal`, the one that clears up excepted, and the library sees an upload that failed.
 */
function abortable(client: S3Client, signal: AbortSignal): S3Client {
  const send = client.send.bind(client) as (command: object, options: object) => Promise<unknown>;
  const sendWithSignal = (command: object): Promise<unknown> =>
    send(command, {
      abortSignal: command instanceof AbortMultipartUploadCommand ? AbortSignal.timeout(CLEAR_MS) : signal,
    });
  return Object.assign(client, { send: sendWithSignal });
}

/** A file is not what was hashed: cut, or changed, since. */
export function shortened(file: FileBody, bytes: number): ObjectDamaged {
  return new ObjectDamaged(`${file.path} no longer holds the ${file.bytes} bytes that were hashed (read ${bytes})`);
}
