import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { StorageAway, StorageRefused } from './errors.ts';
import type { ObjectStore } from './s3.ts';

/** How often a person who looks at the terminal is told what is missing. */
const SAY_MS = 5_000;
/** How soon an S3 that has come up is noticed. */
const LOOK_MS = 500;

/**
 * Waits until S3 answers and the bucket is there, saying every 5 s that it is not.
 * @param options.createBucket makes a missing bucket instead of refusing it
 * @throws StorageRefused with the remedy: credentials, bucket, region, certificate; the signal's reason
 */
export async function waitForStorage(
  store: ObjectStore,
  log: Logger,
  options: { createBucket: boolean; signal: AbortSignal },
): Promise<void> {
  const { signal } = options;
  let saidAt = Number.NEGATIVE_INFINITY;
  let waited = false;
  for (;;) {
    try {
      await store.probe({ signal, patienceMs: 0 });
      if (waited) log.info({ endpoint: store.endpoint }, 'S3 is there');
      return;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof StorageRefused && error.code === 'NoSuchBucket' && options.createBucket) {
        await store.createBucket({ signal });
        log.info({ bucket: store.bucket }, 'bucket made');
        continue;
      }
      if (!(error instanceof StorageAway)) throw error;
      waited = true;
      if (performance.now() - saidAt >= SAY_MS) {
        saidAt = performance.now();
        log.warn(
          { endpoint: store.endpoint, bucket: store.bucket, error: error.message },
          'S3 is not there; waiting for it (AWS_ENDPOINT_URL says where)',
        );
      }
    }
    await sleep(LOOK_MS, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
}
