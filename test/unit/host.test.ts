import { describe, expect, it } from 'vitest';
import { serveHealth } from '../../runner/host/health.ts';
import { holdReason } from '../../runner/host/holds.ts';
import { Metrics } from '../../runner/host/metrics.ts';
import { RunnerRefused } from '../../runner/host/refused.ts';
import { together } from '../../runner/host/together.ts';
import type { RunnerStatus } from '../../schemas/index.ts';
import { sampleStatus } from '../support/samples.ts';

const gib = 2 ** 30;
const fine = {
  diskFreeBytes: 10 * gib,
  diskFloorBytes: 2 * gib,
  spoolBytes: 0,
  spoolLimitBytes: gib,
  waitingJobs: 0,
  storageRefusal: null,
  poolTrouble: null,
};

describe('why a host takes no jobs', () => {
  it('takes them when nothing is wrong', () => expect(holdReason(fine)).toBeNull());

  it.each([
    [{ diskFreeBytes: gib }, /^disk: 1\.0 GiB free, floor is 2\.0 GiB/],
    [{ spoolBytes: 2 * gib }, /^spool: 2\.0 GiB wait/],
    [{ waitingJobs: 1_001 }, /^spool: 1001 jobs wait for S3, limit is 1000$/],
    [{ storageRefusal: 'PUT refused (403)' }, /^S3: PUT refused \(403\)$/],
    [{ poolTrouble: 'template: no' }, /^template: no$/],
    // What to mend first comes first.
    [{ diskFreeBytes: 0, poolTrouble: 'template: no' }, /^disk/],
  ])('names %j', (change, said) => expect(holdReason({ ...fine, ...change })).toMatch(said));
});

describe('beginnings side by side', () => {
  it('gives all values', async () => {
    const both = together<[number, string]>(new AbortController().signal, () => [
      Promise.resolve(1),
      Promise.resolve('a'),
    ]);
    expect(await both).toEqual([1, 'a']);
  });

  it('aborts the others at the first failure and throws it once they have ended', async () => {
    let ended = false;
    const work = together<[never, undefined]>(new AbortController().signal, (signal) => [
      Promise.reject(new Error('first')),
      new Promise((_, reject) =>
        signal.addEventListener('abort', () => {
          setTimeout(() => {
            ended = true;
            reject(new Error('second'));
          }, 20);
        }),
      ),
    ]);
    await expect(work).rejects.toThrow('first');
    expect(ended).toBe(true);
  });
});

describe('the health page', () => {
  it('tells how the runner is, and refuses a port that another has', async () => {
    let state: RunnerStatus['state'] = 'running';
    const status = () => sampleStatus({ state });
    const metrics = new Metrics(status);
    await using page = await serveHealth(0, status, metrics);
    const look = () => fetch(`http://127.0.0.1:${page.port}/healthz`);
    expect((await look()).status).toBe(200);
    state = 'holding';
    const held = await look();
    expect([held.status, await held.json()]).toEqual([503, sampleStatus({ state })]);
    expect((await fetch(`http://127.0.0.1:${page.port}/`)).status).toBe(404);
    const second = serveHealth(page.port, status, metrics);
    await expect(second).rejects.toBeInstanceOf(RunnerRefused);
    await expect(second).rejects.toThrow(`GYMBUS_HEALTH_PORT=${page.port} cannot be listened on (EADDRINUSE)`);
  });
});
