import { spawn } from 'node:child_process';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import path from 'node:path';

/** Another process holds the lock, and did not let go in time. */
export class LockHeld extends Error {
  override readonly name = 'LockHeld';
}

export interface LockOptions {
  /** How long its holder is waited for: 0 not at all, and for ever by default. */
  waitMs?: number;
  /** Called once when another process holds it and is waited for. */
  onWait?: () => void;
  /** Whether others may hold it, too, as long as they all share it. */
  shared?: boolean;
  /** What `LockHeld` says. */
  held?: string;
  signal?: AbortSignal | undefined;
}

/** What flock says when somebody else has it. */
const HELD_EXIT = 75;

/**
 * Takes a lock that all processes of this host respect and that the kernel frees when this process ends, however it ends.
 * The `flock` tool locks the open file that it inherits from here; the lock stays with the file after the tool is gone,
 * and no other child of this process inherits it.
 * @throws LockHeld; the signal's reason
 */
export async function lockFile(file: string, options: LockOptions = {}): Promise<AsyncDisposable> {
  const { waitMs, onWait, shared = false, held = `${file} is locked by another process`, signal } = options;
  signal?.throwIfAborted();
  await mkdir(path.dirname(file), { recursive: true });
  const handle = await open(file, 'a', 0o600);
  // Whoever may read a file may lock it: no other user is to keep this one's processes waiting.
  await handle.chmod(0o600).catch(() => undefined);
  try {
    const kind = shared ? '--shared' : '--exclusive';
    let taken = await flock(handle, [kind, '--nonblock'], signal);
    if (!taken && waitMs !== 0) {
      onWait?.();
      taken = await flock(handle, [kind, ...(waitMs === undefined ? [] : ['--wait', String(waitMs / 1_000)])], signal);
    }
    if (!taken) throw new LockHeld(held);
  } catch (error) {
    await handle.close();
    signal?.throwIfAborted();
    throw error;
  }
  return { [Symbol.asyncDispose]: () => handle.close() };
}

/** @returns false when another has it */
function flock(handle: FileHandle, how: string[], signal: AbortSignal | undefined): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const fail = (why: string) => reject(new Error(`cannot lock: ${why} (flock is part of util-linux)`));
    // Detached: a terminal's Ctrl-C ends its waiting by the signal, with its reason, and not before.
    const tool = spawn('flock', [...how, '--conflict-exit-code', String(HELD_EXIT), '3'], {
      stdio: ['ignore', 'ignore', 'ignore', handle.fd],
      detached: true,
      ...(signal ? { signal } : {}),
    });
    tool.once('error', (error) => fail(error.message));
    tool.once('exit', (code, killedBy) => {
      if (code === 0 || code === HELD_EXIT) resolve(code === 0);
      else fail(killedBy === null ? `exit code ${code}` : `it was ended by ${killedBy}`);
    });
  });
}
