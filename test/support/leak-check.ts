import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/** Replicas are discarded off the critical path; whatever is still there after this was forgotten. */
const GRACE_MS = 10_000;
const MARK = 'GYMBUS_TEST_RUN';

/**
 * Global set-up of every test run: marks the environment, which all processes started by tests inherit, and fails the run
 * when one of them outlives it. Under CI, where nobody else works on the machine, a new loop mount fails it as well.
 */
export default async function leakCheck(): Promise<() => Promise<void>> {
  // Each project of a run calls this: the first one's mark is everybody's.
  process.env[MARK] ??= randomUUID();
  const mark = `${MARK}=${process.env[MARK]}`;
  const mountsBefore = await loopMounts();
  return async () => {
    let left: string[] = [];
    for (const endMs = performance.now() + GRACE_MS; ; await sleep(250)) {
      const mounts = process.env.CI ? (await loopMounts()).filter((mount) => !mountsBefore.includes(mount)) : [];
      left = [...(await markedProcesses(mark)), ...mounts];
      if (left.length === 0) return;
      if (performance.now() > endMs) break;
    }
    console.error(`left behind by the tests:\n  ${left.join('\n  ')}`);
    throw new Error(`${left.length} things were left behind by the tests`);
  };
}

/** Processes with the mark in their environment, this run's own workers left out. */
async function markedProcesses(mark: string): Promise<string[]> {
  const found: string[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const [environment, command] = await Promise.all([readProc(name, 'environ'), readProc(name, 'cmdline')]);
    if (!environment.split('\0').includes(mark)) continue;
    const shown = command.replaceAll('\0', ' ').trim();
    // A zombie has no command any more; vitest's workers and the transformer it runs end with it.
    if (shown === '' || /vitest|esbuild/.test(shown)) continue;
    found.push(`process ${name}: ${shown.slice(0, 160)}`);
  }
  return found;
}

async function loopMounts(): Promise<string[]> {
  const mounts = await readFile('/proc/mounts', 'utf8');
  return mounts.split('\n').filter((line) => line.startsWith('/dev/loop'));
}

function readProc(pid: string, name: string): Promise<string> {
  return readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '');
}
