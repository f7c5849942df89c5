import { SetupError } from '../../functions/contract.ts';
import { checkedInputKey } from '../../functions/download/input-key.ts';
import { ObjectDamaged, ObjectMissing } from './errors.ts';
import type { CallOptions, ObjectStore } from './s3.ts';

/**
 * Reads a file that a job's set-up names.
 * @param key whole; asked here once more whether it is the batch's, for nothing else keeps a job to its own inputs
 * @throws InputKeyError; SetupError when the size or the absence of the file is the job's fault; storage errors as they are
 */
export async function readInput(
  store: ObjectStore,
  batch: string,
  key: string,
  maxBytes: number,
  options: CallOptions,
): Promise<Buffer> {
  try {
    return await store.get(checkedInputKey(key, batch), maxBytes, options);
  } catch (error) {
    if (error instanceof ObjectMissing) {
      throw new SetupError(`input ${store.url(key)} does not exist: put it there before the job is published`, {
        cause: error,
      });
    }
    if (error instanceof ObjectDamaged) throw new SetupError(`input ${error.message}`, { cause: error });
    throw error;
  }
}
