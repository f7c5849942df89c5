import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Guest } from '../../functions/guest.ts';
import type { Machine } from '../qemu/machine.ts';
import type { ImageFiles } from './image-files.ts';

const Desktop = z.object({
  x_alive: z.boolean(),
  windows: z.array(z.looseObject({ class: z.string(), type: z.string().default('normal'), title: z.string() })),
});

const POLL_MS = 500;
/** Its own limit for X is 2 s; the rest is for a guest that is still busy starting. */
const DESKTOP_DEADLINE_MS = 15_000;

/** Waits until the desktop has everything the image says it must have. @throws with what is still missing */
export async function awaitDesktop(
  machine: Machine,
  guest: Guest,
  readiness: ImageFiles['manifest']['readiness'],
  signal: AbortSignal,
): Promise<void> {
  const end = performance.now() + readiness.timeout_s * 1_000;
  for (;;) {
    const missing = await stillMissing(machine, guest, readiness, signal);
    if (missing === null) return;
    if (performance.now() > end) {
      throw new Error(`after ${readiness.timeout_s} s the desktop still lacks ${missing}`);
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function stillMissing(
  machine: Machine,
  guest: Guest,
  readiness: ImageFiles['manifest']['readiness'],
  signal: AbortSignal,
): Promise<string | null> {
  const desktop = await machine.helper.call('desktop', {}, Desktop, { deadlineMs: DESKTOP_DEADLINE_MS, signal });
  if (!desktop.x_alive) return 'an X server that answers';
  for (const wanted of readiness.windows) {
    const there = desktop.windows.some((window) => window.class === wanted.class && window.type === wanted.type);
    if (!there) return `a ${wanted.type} window of class ${wanted.class}`;
  }
  for (const name of readiness.processes) {
    // pgrep matches at most 15 characters of a process's name.
    const argv = ['pgrep', '-x', name.slice(0, 15)];
    const { returncode } = await guest.exec({ argv, user: 'root', timeoutMs: DESKTOP_DEADLINE_MS }, signal);
    if (returncode !== 0) return `process ${name}`;
  }
  return null;
}
