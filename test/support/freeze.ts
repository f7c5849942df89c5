import { readdirSync, readFileSync } from 'node:fs';

/** Threads of a process on a busy machine stop within this time. */
const FREEZE_MS = 5_000;

/** Stops a process, and returns when all of its threads have stopped: until then one of them may still answer. */
export function freeze(pid: number | undefined): void {
  if (pid === undefined) return;
  process.kill(pid, 'SIGSTOP');
  for (const endMs = performance.now() + FREEZE_MS; states(pid).some((state) => !'TtZX'.includes(state)); ) {
    if (performance.now() > endMs) throw new Error(`process ${pid} does not stop`);
  }
}

function states(pid: number): string[] {
  return readdirSync(`/proc/${pid}/task`).map((thread) => {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8');
    // The state follows the name, which stands in brackets and may have any in it.
    return stat[stat.lastIndexOf(')') + 2] ?? '';
  });
}
