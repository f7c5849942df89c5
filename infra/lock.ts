import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';

export interface LockOptions {
  /** Called once when another process holds it and we wait. */
  onWait?: () => void;
  /** Do not wait: throw `LockHeld` with this message. */
  refuse?: string;
  signal?: AbortSignal | undefined;
}

/** Another process holds the lock. */
export class LockHeld extends Error {
  override readonly name = 'LockHeld';
}

const TELL_AFTER_MS = 500;
/** What flock says when it may not wait and the lock is held. */
const HELD_EXIT = 75;

/**
 * Takes an exclusive lock between processes. The kernel holds it for a child that lives as long as its standard input
 * is open, so it is free again the moment this process is gone, however it went.
 * @throws LockHeld, or the signal's reason
 */
export async function fileLock(file: string, options: LockOptions = {}): Promise<AsyncDisposable> {
  const { signal, refuse } = options;
  signal?.throwIfAborted();
  await mkdir(path.dirname(file), { recursive: true });
  const mode = refuse === undefined ? [] : ['--nonblock', '--conflict-exit-code', String(HELD_EXIT)];
  // Detached: a terminal's Ctrl-C must not end the lock before its owner.
  const child = spawn('flock', ['--exclusive', ...mode, file, 'cat'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    detached: true,
  });
  const ended = new Promise<number | Error | null>((resolve) => {
    child.once('error', resolve);
    child.once('exit', resolve);
  });
  // The pipe breaks when flock gives up; its exit says why.
  child.stdin.on('error', () => {});
  child.stdin.write('locked\n');
  const abort = () => child.kill('SIGKILL');
  signal?.addEventListener('abort', abort, { once: true });
  const telling = setTimeout(() => options.onWait?.(), TELL_AFTER_MS);
  try {
    // `cat` echoes the line once it runs, and it runs once the lock is ours.
    const outcome = await Promise.race([once(child.stdout, 'data').then(() => 'locked' as const), ended]);
    signal?.throwIfAborted();
    if (outcome === HELD_EXIT) throw new LockHeld(refuse ?? `${file} is locked`);
    if (outcome !== 'locked') {
      const why = outcome instanceof Error ? outcome.message : `exit code ${outcome}`;
      throw new Error(`cannot lock ${file}: ${why} (flock is part of util-linux)`);
    }
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  } finally {
    clearTimeout(telling);
    signal?.removeEventListener('abort', abort);
  }
  return {
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await ended;
    },
  };
}
