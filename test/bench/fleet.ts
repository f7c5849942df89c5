import { setTimeout as sleep } from 'node:timers/promises';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { availableMemory } from '../../runner/replica/host-now.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { mergedBytes } from '../../runner/replica/ksm.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { ownMemory } from '../../runner/replica/usage.ts';
import { playBare } from './bare-episode.ts';
import { type Figure, median, rounded } from './figure.ts';
import { claimNext, openBenchPool } from './pools.ts';

/** Of the frozen ones, drawn by chance, each plays a scored job. */
const PLAYED = 64;
/** Played at once. */
const HANDS = 4;
const TELL_EACH = 128;
/** Without room for one more for so long, it is full: merging frees some meanwhile. */
const FULL_MS = 60_000;
/** Merging is at rest when it saves no hundredth more in this time. */
const MERGED_MS = 20_000;
const mib = 2 ** 20;

/** Very many frozen desktops on one machine, and jobs played by some of them. @param count as many as are to be frozen at once */
export async function fleetFigures(image: Image, count: number, signal: AbortSignal): Promise<Figure[]> {
  const freeBefore = availableMemory();
  const startedAt = performance.now();
  const settings = { frozen: count, ready: 1, acting: HANDS };
  await using bench = await openBenchPool(image, 'bench-fleet', settings, signal, { draw: Math.random });
  const { pool } = bench;
  const stopped = await fill(pool, count, signal, (there) => {
    console.error(`${there} frozen after ${rounded((performance.now() - startedAt) / 1_000)} s`);
  });
  const made = pool.phases().frozen ?? 0;
  const madeMs = performance.now() - startedAt;
  const { mergeMemory } = readConfig(process.env);
  if (mergeMemory) await mergedAtRest(signal);
  const freeAfter = availableMemory();
  const each = (await qemuProcesses()).map(({ pid }) => ownMemory(pid) ?? Number.NaN);

  const pictures: number[] = [];
  let next = 0;
  const hand = async (): Promise<void> => {
    for (let number = next++; number < PLAYED; number = next++) {
      const claimedAt = performance.now();
      const replica = await claimNext(pool, image.name, signal);
      await replica.screenshot(signal);
      pictures.push(performance.now() - claimedAt);
      await playBare(replica, number, signal);
      await replica.discard();
    }
  };
  await Promise.all(Array.from({ length: HANDS }, hand));
  const perFrozen = (freeBefore - freeAfter) / made / mib;
  const most = mergeMemory ? 10 : 16;
  const goal = { baseline: null, ratio: null };
  return [
    {
      ...{
        figure: `frozen desktops at once${stopped === null ? '' : `, stopped by ${stopped}`}`,
        value: made,
        unit: '',
      },
      ...{ ...goal, goal: `>= ${count}`, met: made >= count },
    },
    {
      ...{ figure: 'made in, each', value: rounded(madeMs / made), unit: 'ms', ...goal },
      ...{ goal: 'reported', met: true },
    },
    {
      ...{
        figure: `memory of the host, each${mergeMemory ? ', merged' : ''}`,
        value: rounded(perFrozen),
        unit: 'MiB',
        baseline: rounded(median(each) / mib),
      },
      ...{ ratio: null, goal: `< ${most} MiB`, met: perFrozen < most },
    },
    {
      ...{ figure: 'memory left', value: rounded(freeAfter / 2 ** 30), unit: 'GiB', ...goal },
      ...{ goal: '>= 1', met: freeAfter >= 2 ** 30 },
    },
    {
      ...{ figure: `drawn by chance and scored, of ${PLAYED}`, value: pictures.length, unit: '', ...goal },
      ...{ goal: `${PLAYED}`, met: pictures.length === PLAYED },
    },
    {
      ...{
        figure: 'claim to first screenshot beside them, median',
        value: rounded(median(pictures)),
        unit: 'ms',
        ...goal,
      },
      ...{ goal: 'reported', met: true },
    },
  ];
}

/** @returns what stopped it before it had so many, or null */
async function fill(
  pool: VirtualPool,
  count: number,
  signal: AbortSignal,
  onMore: (there: number) => void,
): Promise<string | null> {
  let told = 0;
  let most = { there: 0, atMs: performance.now() };
  for (;;) {
    const there = pool.phases().frozen ?? 0;
    if (there > most.there) most = { there, atMs: performance.now() };
    if (there >= told + TELL_EACH) {
      told = there;
      onMore(there);
    }
    if (there >= count) return null;
    if (performance.now() - most.atMs > FULL_MS)
      return pool.states()[0]?.refused ?? pool.trouble ?? 'nothing it tells of';
    await sleep(100, undefined, { signal });
  }
}

async function mergedAtRest(signal: AbortSignal): Promise<void> {
  for (let before = 0; ; ) {
    const now = mergedBytes() ?? 0;
    if (now <= before * 1.01) return;
    before = now;
    await sleep(MERGED_MS, undefined, { signal });
  }
}
