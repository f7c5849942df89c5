import { SetupError } from '../../functions/contract.ts';
import { objectKeys } from '../../schemas/index.ts';
import { ObjectDamaged, ObjectMissing } from './errors.ts';
import type { ObjectStore } from './s3.ts';

/** A file for a guest is held in memory on its way there. */
const MOST_INPUT_BYTES = 64 << 20;

/**
 * The key a job means by a name: under `inputs/<batch>/`, given whole or relative to it.
 * @throws SetupError for anything else: dots as segments, empty segments, backslashes, control characters
 */
export function inputKey(batch: string, name: string): string {
  const folder = objectKeys.inputs(batch);
  const relative = name.startsWith(folder) ? name.slice(folder.length) : name;
  const segments = relative.split('/');
  const illegal =
    relative.length === 0 ||
    Buffer.byteLength(folder + relative) > 1024 ||
    segments.some((segment) => segment === '' || segment === '.' || segment === '..') ||
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
    /[\u0000-\u001f\u007f\\]/.test(relative) ||
    (segments.length > 1 && segments[0] === 'inputs');
  if (illegal) {
    throw new SetupError(`${JSON.stringify(name)} names no input: a job may name only files under ${folder}`);
  }
  return folder + relative;
}

/**
 * Reads a file that a job's set-up names.
 * @throws SetupError when the name, the size or the absence of the file is the job's fault; storage errors as they are
 */
export async function readInput(
  store: ObjectStore,
  batch: string,
  name: string,
  signal: AbortSignal,
  mostBytes = MOST_INPUT_BYTES,
): Promise<Buffer> {
  const key = inputKey(batch, name);
  try {
    return await store.get(key, mostBytes, { signal });
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
