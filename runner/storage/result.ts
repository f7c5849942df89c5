import { objectKeys, type Result } from '../../schemas/index.ts';
import { contentTypeOf } from './content-type.ts';
import type { CallOptions, ObjectStore } from './s3.ts';

/**
 * Puts `result.json`, the copy of a committed outcome. Idempotent: whoever redoes it writes what the results subject says,
 * so every writer writes the same.
 * @param committed the outcome as it stands on the bus
 */
export async function putResult(store: ObjectStore, committed: Result, options: CallOptions = {}): Promise<void> {
  const key = objectKeys.result(committed.batch_id, committed.job_id);
  await store.put(key, Buffer.from(`${JSON.stringify(committed, null, 2)}\n`), contentTypeOf(key), options);
}
