import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Batches, TakenJob } from '../../runner/bus/batches.ts';
import { pullLoop } from '../../runner/host/pull-loop.ts';
import type { ReplicaPool, Reservation } from '../../runner/replica/contract.ts';

/** A queue and a pool of six places: what is asked of each is written down. */
function desk(jobs: number) {
  const asked: number[] = [];
  const expected: number[] = [];
  let [left, free] = [jobs, 6];
  let refusal: string | null = null;
  const stop = new AbortController();
  const batches: Pick<Batches, 'waiting' | 'take' | 'wait'> = {
    waiting: () => left,
    take: async (_image, count) => {
      asked.push(count);
      const taken = Math.min(count, left);
      left -= taken;
      return Array.from({ length: taken }, () => ({}) as TakenJob);
    },
    wait: (_image, signal) => sleep(20, undefined, { signal: signal as AbortSignal }).catch(() => undefined),
  };
  const pool = {
    expect: (_image: string, waiting: number) => expected.push(waiting),
    refusalOf: () => refusal,
    reserve: (): Reservation | null => {
      if (free === 0 || refusal !== null) return null;
      free -= 1;
      return { release: () => (free += 1) } as unknown as Reservation;
    },
    waitReady: () => sleep(5),
  } as unknown as ReplicaPool;
  const reasons: (string | null)[] = [];
  const loop = pullLoop('desk', {
    ...{ batches: batches as Batches, pool, signal: stop.signal },
    look: async () => ({ reason: null, diskFreeBytes: 0 }),
    play: async () => undefined,
    onLook: ({ reason }) => reasons.push(reason),
  });
  return {
    ...{ asked, expected, reasons },
    refuse: (reason: string | null) => {
      refusal = reason;
    },
    stop: async () => {
      stop.abort();
      await loop;
    },
  };
}

describe('pulling', () => {
  it('takes one place to look at an empty queue: other runners of the host want places, too', async () => {
    const { asked, expected, stop } = desk(0);
    await expect.poll(() => asked.length).toBeGreaterThan(2);
    await stop();
    expect(new Set(asked)).toEqual(new Set([1]));
    expect(new Set(expected)).toEqual(new Set([0]));
  });

  it('takes a place for each job that waits, as far as there are, and tells the pool of them', async () => {
    const { asked, expected, stop } = desk(9);
    await expect.poll(() => asked.length).toBeGreaterThan(0);
    await stop();
    expect(asked[0]).toBe(6);
    expect(expected.slice(0, 2)).toEqual([9, 3]);
  });

  it('says why the host gives it no place, until it does', async () => {
    const { reasons, refuse, stop } = desk(0);
    refuse('memory: 1 more would leave 0.8 GiB, floor is 1 GiB');
    await expect.poll(() => reasons.at(-1)).toBe('memory: 1 more would leave 0.8 GiB, floor is 1 GiB');
    refuse(null);
    await expect.poll(() => reasons.at(-1)).toBeNull();
    await stop();
  });
});
