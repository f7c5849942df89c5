import { randomBytes } from 'node:crypto';
import { chmod, mkdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findLeaks, type TestRun } from './leaks.ts';
import { testDataDir } from './test-data.ts';

/** Replicas are discarded off the critical path; whatever is still there after this was forgotten. */
const GRACE_MS = 10_000;
const MARK = 'GYMBUS_TEST_RUN';

/**
 * Global set-up of every test run: marks the environment, which all processes started by tests inherit, gives the run a
 * folder of its own for temporary files, and fails it when a process, a machine or a loop mount of it outlives it.
 */
export default async function leakCheck(): Promise<() => Promise<void>> {
  // Each project of a run calls this: the first one's mark and folder are everybody's, and the first one removes them.
  const first = process.env[MARK] === undefined;
  process.env[MARK] ??= randomBytes(4).toString('hex');
  if (first) process.env.TMPDIR = await makeFolder(path.join(os.tmpdir(), `gymbus-test-${process.env[MARK]}`));
  const own = os.tmpdir();
  const run: TestRun = { mark: `${MARK}=${process.env[MARK]}`, own: [own], shared: [testDataDir] };
  const before = await findLeaks(run);
  return async () => {
    for (const endMs = performance.now() + GRACE_MS; ; await sleep(250)) {
      const left = (await findLeaks(run)).filter((leak) => !before.includes(leak));
      if (left.length === 0) break;
      if (performance.now() <= endMs) continue;
      console.error(`left behind by the tests:\n  ${left.join('\n  ')}`);
      throw new Error(`${left.length} things were left behind by the tests`);
    }
    if (first) await rm(own, { recursive: true, force: true });
  };
}

/** Whoever the tests run programs as may write to it, as to the system's own. */
async function makeFolder(folder: string): Promise<string> {
  await mkdir(folder);
  await chmod(folder, 0o1777);
  return folder;
}
