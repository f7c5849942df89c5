import { objectKeys, quote } from '../../schemas/index.ts';

/** S3's own limit. */
const MOST_KEY_BYTES = 1024;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const ILLEGAL = /[\u0000-\u001f\u007f\\]/;

/** A job names an object that is not its to read. */
export class InputKeyError extends Error {
  override readonly name = 'InputKeyError';
}

/**
 * The whole key of a job's input.
 * @param name whole (`inputs/<batch>/a.txt`) or relative to that folder (`a.txt`)
 * @throws InputKeyError when it lies anywhere else
 */
export function inputKey(name: string, batch: string): string {
  return checkedInputKey(name.startsWith('inputs/') ? name : objectKeys.inputs(batch) + name, batch);
}

/** @returns the key itself @throws InputKeyError when it is no file under `inputs/<batch>/` */
export function checkedInputKey(key: string, batch: string): string {
  const folder = objectKeys.inputs(batch);
  const segments = key.split('/');
  const legal = segments.every((name) => name !== '' && name !== '.' && name !== '..' && !ILLEGAL.test(name));
  if (!key.startsWith(folder) || !legal || Buffer.byteLength(key) > MOST_KEY_BYTES) {
    throw new InputKeyError(`${quote(key)} is not a file under ${folder}; put it there, nothing else can be named`);
  }
  return key;
}

/** @returns what an `s3://` URL names, or null when it is none */
export function parseS3Url(url: string): { bucket: string; key: string } | null {
  const match = /^s3:\/\/([^/]+)\/(.+)$/.exec(url);
  return match?.[1] && match[2] ? { bucket: match[1], key: match[2] } : null;
}

/** What a reading of a key found wrong, as a line for the job's publisher; none where it is sound. */
export function keyProblems(field: string, read: () => string): string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (!(error instanceof InputKeyError)) throw error;
    return [`${field}: ${error.message}`];
  }
}
