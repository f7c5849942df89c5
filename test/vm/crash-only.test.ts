import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { prepare } from '../../infra/bin/prepare.mjs';
import { reapOwned } from '../../runner/replica/reap.ts';
import { type Fixture, leftovers, openFixture } from './fixture.ts';

/** Moments of a runner's life at which it is killed. */
const REAL_KILLS = 56;
const STAND_IN_KILLS = 200;
/** From the first clone to a few discards. */
const REAL_LIFE_MS = 3_000;
const STAND_IN_LIFE_MS = 300;
const START_MS = 120_000;
const standIn = path.resolve(import.meta.dirname, '../support/stand-in-qemu.pl');

interface Report {
  /** Things that the one before left behind. */
  found: number;
  /** Those that are there after the reaping. */
  left: string[];
}

let vm: Fixture;
let compiled: string;
beforeAll(async () => {
  vm = await openFixture('test-crash');
  compiled = prepare();
}, START_MS);
afterAll(() => vm?.[Symbol.asyncDispose]());

/** Starts a runner's replicas and waits for what it says of its forerunner. */
async function start(runnerId: string, args: readonly string[]): Promise<{ child: ChildProcess; report: Report }> {
  const child = spawn(process.execPath, [path.join(compiled, 'test/vm/crash-process.js'), runnerId, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout });
  const [line] = (await once(lines, 'line', { signal: AbortSignal.timeout(START_MS) })) as [string];
  return { child, report: JSON.parse(line) as Report };
}

/** Lives of one runner, one after the other, each ended at a moment drawn by chance. @returns how much was found in all */
async function killAgainAndAgain(runnerId: string, kills: number, lifeMs: number, args: string[]): Promise<number> {
  let found = 0;
  for (let n = 0; n < kills; n += 1) {
    const { child, report } = await start(runnerId, args);
    const at = Math.random() * lifeMs;
    const exited = once(child, 'exit');
    await Promise.race([sleep(at), exited]);
    expect(child.exitCode, `${runnerId} ended by itself in life ${n}`).toBeNull();
    child.kill('SIGKILL');
    await exited;
    expect(report.left, `after kill ${n} of ${runnerId}`).toEqual([]);
    found += report.found;
  }
  const engine = { ...vm.engine, runnerId };
  await reapOwned(vm.area.path, runnerId);
  expect(await leftovers(engine)).toEqual([]);
  return found;
}

describe('a runner killed at random moments', () => {
  it.each([
    [`with QEMU, ${REAL_KILLS} times`, REAL_KILLS, REAL_LIFE_MS, []],
    [`with a stand-in for QEMU, ${STAND_IN_KILLS} times`, STAND_IN_KILLS, STAND_IN_LIFE_MS, [standIn]],
  ])(
    '%s: the next one of its name leaves nothing of it',
    async (_, kills, lifeMs, args) => {
      const before = await identities();
      const half = kills / 2;
      const found = await Promise.all(
        ['test-crash-a', 'test-crash-b'].map((id) => killAgainAndAgain(id, half, lifeMs, args)),
      );
      // Killed in the middle of something, most of the times.
      expect(Math.min(...found)).toBeGreaterThan(half / 2);
      // Those of others may go meanwhile.
      expect((await identities()).filter((id) => !before.includes(id))).toEqual([]);
    },
    900_000,
  );
});

const identities = (): Promise<string[]> => readdir(path.join(vm.area.path, 'identities')).catch(() => []);
