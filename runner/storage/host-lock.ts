import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';

/** Another process holds the lock, and did not let go in time. */
export class LockHeld extends Error {
  override readonly name = 'LockHeld';
}

/**
 * Takes a lock that all processes of this host respect and that the kernel frees when this process ends, however it ends.
 * The `flock` tool locks the open file that it inherits from here; the lock stays with the file after the tool is gone.
 * @param waitMs 0: do not wait
 * @throws LockHeld
 */
export async function lockFile(file: string, waitMs: number, signal?: AbortSignal): Promise<AsyncDisposable> {
  await mkdir(path.dirname(file), { recursive: true });
  const handle = await open(file, 'a');
  try {
    const wait = waitMs === 0 ? ['--nonblock'] : ['--wait', String(waitMs / 1_000)];
    const tool = spawn('flock', ['--exclusive', ...wait, '3'], {
      stdio: ['ignore', 'ignore', 'ignore', handle.fd],
      ...(signal ? { signal } : {}),
    });
    const [code] = await once(tool, 'exit');
    if (code !== 0) throw new LockHeld(`${file} is locked by another process`);
  } catch (error) {
    await handle.close();
    signal?.throwIfAborted();
    throw error;
  }
  return { [Symbol.asyncDispose]: () => handle.close() };
}
