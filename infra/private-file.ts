import { randomBytes } from 'node:crypto';
import { open, readFile, rename, rm } from 'node:fs/promises';

/** Writes a file that only we may read, whole or not at all. */
export async function writePrivate(file: string, text: string): Promise<void> {
  const partial = `${file}.${randomBytes(4).toString('hex')}`;
  try {
    const handle = await open(partial, 'wx', 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(partial, file);
  } finally {
    await rm(partial, { force: true });
  }
}

/** Null when it is not there. @throws when it is and cannot be read or parsed */
export async function readJson<T>(file: string, parse: (value: unknown) => T): Promise<T | null> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  try {
    return parse(JSON.parse(text));
  } catch (error) {
    throw new Error(`${file} is damaged (${(error as Error).message}); remove it and start again`, { cause: error });
  }
}
