import pRetry from 'p-retry';
import { StorageAway } from './errors.ts';

export interface Patience {
  signal?: AbortSignal | undefined;
  /** How long to go on while S3 is away; 0 tries once, Infinity as long as `signal` allows. */
  patienceMs: number;
  /** Which errors are worth another try; by default only `StorageAway`. */
  worthRetrying?: (error: Error) => boolean;
  /** Told of each failed try. */
  onTrouble?: (error: Error) => void;
}

/** Short: a dropped keep-alive connection is the usual cause, and a new one does. */
const FIRST_PAUSE_MS = 200;
/** An S3 that is back is noticed within this time. */
const LONGEST_PAUSE_MS = 5_000;

/** Tries until it works, with growing pauses. @throws the last error, or the signal's reason at once */
export function persist<T>(attempt: () => Promise<T>, patience: Patience): Promise<T> {
  const worthRetrying = patience.worthRetrying ?? ((error) => error instanceof StorageAway);
  return pRetry(attempt, {
    retries: patience.patienceMs > 0 ? Number.POSITIVE_INFINITY : 0,
    maxRetryTime: patience.patienceMs > 0 ? patience.patienceMs : Number.POSITIVE_INFINITY,
    minTimeout: FIRST_PAUSE_MS,
    maxTimeout: LONGEST_PAUSE_MS,
    randomize: true,
    shouldRetry: ({ error }) => worthRetrying(error),
    onFailedAttempt: ({ error }) => {
      if (!patience.signal?.aborted) patience.onTrouble?.(error);
    },
    ...(patience.signal ? { signal: patience.signal } : {}),
  });
}
