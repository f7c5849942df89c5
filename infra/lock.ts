import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';

/**
 * Waits for an exclusive lock between processes. The kernel holds it for a child that lives as long as its standard input
 * is open, so it is free again the moment this process is gone, however it went.
 * @param onWait called once when another process holds it
 */
export async function fileLock(
  file: string,
  options: { onWait?: () => void; signal?: AbortSignal | undefined } = {},
): Promise<AsyncDisposable> {
  await mkdir(path.dirname(file), { recursive: true });
  const child = execa('flock', ['--exclusive', file, 'cat'], {
    stdin: 'pipe',
    stdout: 'pipe',
    buffer: false,
    reject: false,
    ...(options.signal === undefined ? {} : { cancelSignal: options.signal }),
  });
  child.stdin.write('locked\n');
  const told = setTimeout(() => options.onWait?.(), TELL_AFTER_MS);
  try {
    // `cat` echoes the line once it runs, and it runs once the lock is ours.
    await Promise.race([
      once(child.stdout, 'data'),
      child.then((result) => {
        options.signal?.throwIfAborted();
        throw new Error(`cannot lock ${file}: flock ended (${result.shortMessage}); it is part of util-linux`);
      }),
    ]);
  } finally {
    clearTimeout(told);
  }
  return {
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await child;
    },
  };
}

const TELL_AFTER_MS = 500;
