import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  CreateBucketCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';
import { Gatherer } from '../../functions/gatherer.ts';
import { type Deadline, deadline } from './deadline.ts';
import { ObjectDamaged, ObjectMissing, StorageAway } from './errors.ts';
import { type FileBody, putInParts, shortened } from './multipart.ts';
import { type Patience, persist } from './retry.ts';
import { createS3Client, type S3Config, STALL_MS } from './s3-client.ts';
import { explainS3Error } from './s3-errors.ts';

export type { FileBody } from './multipart.ts';
export type { S3Config } from './s3-client.ts';

/** An object as a listing or a head request tells of it. */
export interface ObjectInfo {
  key: string;
  bytes: number;
  modifiedAt: Date | null;
}

export interface CallOptions extends Partial<Pick<Patience, 'patienceMs' | 'worthRetrying' | 'onTrouble'>> {
  signal?: AbortSignal | undefined;
}

/** Slowest transfer that is waited for, on top of the time-out of a stalled one. */
const LEAST_BYTES_PER_MS = 64;
/** Files up to this are read whole before they are sent; larger ones are streamed. Times concurrency, this bounds memory. */
const WHOLE_BYTES = 1 << 20;
/** From here on uploads go in parts, each with its own checksum: one broken connection costs a part. */
const MULTIPART_BYTES = 32 << 20;
/** Reads and small writes wait out a restart of the server. */
const PATIENCE_MS = 30_000;

/**
 * One bucket. Every call has a deadline, is tried again while S3 is away (`patienceMs`), and throws one of
 * `StorageAway`, `StorageRefused`, `ObjectMissing`, `ObjectDamaged`, or the signal's own reason.
 */
export class ObjectStore implements Disposable {
  readonly bucket: string;
  /** For messages. */
  readonly endpoint: string;
  readonly #config: S3Config;
  readonly #client: S3Client;
  readonly #stallMs: number;
  readonly #patienceMs: number;

  constructor(config: S3Config) {
    this.#config = config;
    this.bucket = config.bucket;
    this.endpoint = config.endpoint ?? `AWS ${config.region}`;
    this.#stallMs = config.stallMs ?? STALL_MS;
    this.#patienceMs = config.patienceMs ?? PATIENCE_MS;
    this.#client = createS3Client(config);
  }

  [Symbol.dispose](): void {
    this.#client.destroy();
  }

  /** `s3://bucket/key`, as results name trajectories. */
  url(key: string): string {
    return `s3://${this.bucket}/${key}`;
  }

  /** Stores small bytes whole or not at all, with their SHA-256 checked by the server. */
  put(key: string, body: Uint8Array, contentType: string, options: CallOptions = {}): Promise<void> {
    const sha256 = createHash('sha256').update(body).digest('base64');
    return this.#call('PUT', key, body.byteLength, options, ({ signal }) =>
      this.#put(key, body, body.byteLength, sha256, contentType, signal),
    );
  }

  /**
   * Stores the first `file.bytes` of a file whole or not at all. The server refuses bytes of another hash.
   * Memory: 1 MiB at most for small files, a stream's buffers or two parts of 8 MiB for large ones.
   */
  putFile(key: string, file: FileBody, contentType: string, options: CallOptions = {}): Promise<void> {
    return this.#call('PUT', key, file.bytes, options, async (limit) => {
      if (file.bytes > MULTIPART_BYTES) return putInParts(this.#config, key, file, contentType, limit.signal);
      const sha256 = Buffer.from(file.sha256, 'hex').toString('base64');
      if (file.bytes <= WHOLE_BYTES) {
        const whole = (await readFile(file.path, { signal: limit.signal })).subarray(0, file.bytes);
        if (whole.byteLength < file.bytes) throw shortened(file, whole.byteLength);
        return this.#put(key, whole, file.bytes, sha256, contentType, limit.signal);
      }
      const body = createReadStream(file.path, { end: file.bytes - 1 });
      // The SDK pipes it, and a pipe does not pass errors on.
      body.once('error', (error) => limit.fail(error));
      body.once('end', () => {
        if (body.bytesRead < file.bytes) limit.fail(shortened(file, body.bytesRead));
      });
      try {
        await this.#put(key, body, file.bytes, sha256, contentType, limit.signal);
      } finally {
        body.destroy();
      }
    });
  }

  async #put(
    key: string,
    body: Uint8Array | Readable,
    bytes: number,
    sha256: string,
    contentType: string,
    abortSignal: AbortSignal,
  ): Promise<void> {
    await this.#client.send(
      new PutObjectCommand({
        Bucket: this.bucket,
        Key: key,
        Body: body,
        ContentLength: bytes,
        ContentType: contentType,
        ChecksumSHA256: sha256,
      }),
      { abortSignal },
    );
  }

  /** Reads a whole object of at most `maxBytes` into as much memory. @throws ObjectDamaged when it is larger */
  get(key: string, maxBytes: number, options: CallOptions = {}): Promise<Buffer> {
    return this.#call('GET', key, 0, options, async (limit) => {
      const { body, bytes } = await this.#open(key, limit);
      try {
        if (bytes > maxBytes)
          throw new ObjectDamaged(`${this.url(key)} has ${bytes} bytes, at most ${maxBytes} are read`);
        const whole = new Gatherer(bytes);
        for await (const chunk of body) whole.add(chunk as Buffer);
        if (whole.bytes !== bytes) throw brokeOff(this.url(key), whole.bytes, bytes);
        return whole.whole();
      } finally {
        body.destroy();
      }
    });
  }

  /** Streams an object into a file, which is made or replaced. @returns its length and hash */
  download(key: string, path: string, options: CallOptions = {}): Promise<{ bytes: number; sha256: string }> {
    return this.#call('GET', key, 0, options, async (limit) => {
      const { body, bytes } = await this.#open(key, limit);
      const hash = createHash('sha256');
      let received = 0;
      await pipeline(
        body,
        async function* (source: AsyncIterable<Buffer>) {
          for await (const chunk of source) {
            hash.update(chunk);
            received += chunk.byteLength;
            yield chunk;
          }
        },
        createWriteStream(path),
      );
      if (received !== bytes) throw brokeOff(this.url(key), received, bytes);
      return { bytes, sha256: hash.digest('hex') };
    });
  }

  async #open(key: string, limit: Deadline): Promise<{ body: Readable; bytes: number }> {
    const answer = await this.#client.send(new GetObjectCommand({ Bucket: this.bucket, Key: key }), {
      abortSignal: limit.signal,
    });
    const bytes = answer.ContentLength ?? 0;
    limit.extend(this.#deadlineMs(bytes));
    return { body: answer.Body as Readable, bytes };
  }

  /** What is known of an object; null when there is none. */
  async head(key: string, options: CallOptions = {}): Promise<(ObjectInfo & { contentType: string | null }) | null> {
    try {
      const answer = await this.#call('HEAD', key, 0, options, ({ signal }) =>
        this.#client.send(new HeadObjectCommand({ Bucket: this.bucket, Key: key }), { abortSignal: signal }),
      );
      return {
        key,
        bytes: answer.ContentLength ?? 0,
        modifiedAt: answer.LastModified ?? null,
        contentType: answer.ContentType ?? null,
      };
    } catch (error) {
      if (error instanceof ObjectMissing) return null;
      throw error;
    }
  }

  /** Every object whose key starts with `prefix`, in the order of their keys, a page of 1,000 at a time. */
  async *list(prefix: string, options: CallOptions & { startAfter?: string } = {}): AsyncGenerator<ObjectInfo> {
    for await (const page of this.#pages(prefix, options)) {
      for (const { Key, Size, LastModified } of page.Contents ?? []) {
        if (Key !== undefined) yield { key: Key, bytes: Size ?? 0, modifiedAt: LastModified ?? null };
      }
    }
  }

  /** The names of the folders right under `prefix`, which ends in a slash. */
  async *folders(prefix: string, options: CallOptions = {}): AsyncGenerator<string> {
    for await (const page of this.#pages(prefix, { ...options, delimiter: '/' })) {
      for (const { Prefix } of page.CommonPrefixes ?? []) {
        if (Prefix !== undefined) yield Prefix.slice(prefix.length, -1);
      }
    }
  }

  async *#pages(prefix: string, options: CallOptions & { startAfter?: string; delimiter?: string }) {
    let token: string | undefined;
    do {
      const page = await this.#call('LIST', prefix, 0, options, ({ signal }) =>
        this.#client.send(
          new ListObjectsV2Command({
            Bucket: this.bucket,
            Prefix: prefix,
            Delimiter: options.delimiter,
            StartAfter: options.startAfter,
            ContinuationToken: token,
          }),
          { abortSignal: signal },
        ),
      );
      yield page;
      token = page.IsTruncated ? page.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  /** Asks for one key: whether S3 is there, the bucket exists and the credentials are good. */
  async probe(options: CallOptions = {}): Promise<void> {
    // Not HeadBucket: its answers have no body, so a wrong key and a missing permission look alike.
    await this.#call('LIST', '', 0, options, ({ signal }) =>
      this.#client.send(new ListObjectsV2Command({ Bucket: this.bucket, MaxKeys: 1 }), { abortSignal: signal }),
    );
  }

  /** Makes the bucket; one that is ours already is fine. */
  async createBucket(options: CallOptions = {}): Promise<void> {
    await this.#call('CREATE', '', 0, options, async ({ signal }) => {
      try {
        await this.#client.send(new CreateBucketCommand({ Bucket: this.bucket }), { abortSignal: signal });
      } catch (error) {
        const { name } = error as Error;
        if (name !== 'BucketAlreadyOwnedByYou') throw error;
      }
    });
  }

  #deadlineMs(bytes: number): number {
    return 2 * this.#stallMs + bytes / LEAST_BYTES_PER_MS;
  }

  #call<T>(
    operation: string,
    key: string,
    bytes: number,
    options: CallOptions,
    send: (limit: Deadline) => Promise<T>,
  ): Promise<T> {
    const request = { operation, key, bucket: this.bucket, endpoint: this.endpoint };
    const once = async (): Promise<T> => {
      const limit = deadline(
        options.signal,
        this.#deadlineMs(bytes),
        () => new StorageAway(`${operation} ${this.url(key)} at ${this.endpoint}: not done in time`),
      );
      try {
        return await send(limit);
      } catch (error) {
        options.signal?.throwIfAborted();
        if (limit.failure) throw limit.failure;
        if (error instanceof ObjectDamaged || error instanceof StorageAway || isOurs(error)) throw error;
        throw explainS3Error(error, request);
      } finally {
        limit.clear();
      }
    };
    return persist(once, { ...options, patienceMs: options.patienceMs ?? this.#patienceMs });
  }
}

/** An error of this machine's file system, or of this program: not S3's, and not to be tried again. */
function isOurs(error: unknown): boolean {
  if (error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError) return true;
  const { code, path, syscall } = error as NodeJS.ErrnoException;
  return syscall !== undefined && syscall !== 'connect' && (code === 'ENOSPC' || path !== undefined);
}

function brokeOff(url: string, received: number, bytes: number): StorageAway {
  return new StorageAway(`GET ${url}: broke off after ${received} of ${bytes} bytes`);
}
