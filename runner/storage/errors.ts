/**
 * What can go wrong with storage, by what is to be done about it.
 * `StorageAway`, `StorageRefused`, `ObjectDamaged`: an attempt's failure class is `storage`. `StorageFull`: `host`.
 */

/** S3 is not reached, does not answer in time, or asks to try again later. Trying again is right. */
export class StorageAway extends Error {
  override readonly name = 'StorageAway';
}

/** S3 answers and says no: credentials, bucket, region, certificate. The message says what to change. */
export class StorageRefused extends Error {
  override readonly name = 'StorageRefused';
  /** S3's own code, e.g. `SignatureDoesNotMatch`, or the system's. */
  readonly code: string;
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** There is no object of that key. */
export class ObjectMissing extends Error {
  override readonly name = 'ObjectMissing';
  readonly key: string;
  constructor(key: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.key = key;
  }
}

/** Bytes are not what they must be: another hash or length, or no whole picture. */
export class ObjectDamaged extends Error {
  override readonly name = 'ObjectDamaged';
}

/** No room on this machine's disk. */
export class StorageFull extends Error {
  override readonly name = 'StorageFull';
}

/** Names a full disk for what it is; every other error of the file system passes unchanged. */
export function asStorageFull(error: unknown, path: string): unknown {
  const code = (error as NodeJS.ErrnoException | null)?.code;
  if (code !== 'ENOSPC' && code !== 'EDQUOT') return error;
  return new StorageFull(
    `no room on disk for ${path} (${code}): free some, or point GYMBUS_DATA at a larger file system`,
    { cause: error },
  );
}
