import type { Image } from '../../images/store.ts';
import { availableMemory } from '../../runner/replica/host-now.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { ownMemory } from '../../runner/replica/usage.ts';
import { playBare } from './bare-episode.ts';
import { type Figure, median, rounded } from './figure.ts';
import { claimNext, openBenchPool, until } from './pools.ts';

/** Of the frozen ones, drawn by chance, each plays a scored job. */
const PLAYED = 64;
/** Played at once. */
const HANDS = 4;
const TELL_EACH = 128;
const mib = 2 ** 20;

/** Very many frozen desktops on one machine, and jobs played by some of them. @param count as many as are to be frozen at once */
export async function fleetFigures(image: Image, count: number, signal: AbortSignal): Promise<Figure[]> {
  const freeBefore = availableMemory();
  const startedAt = performance.now();
  const settings = { frozen: count, ready: 1, acting: HANDS };
  await using bench = await openBenchPool(image, 'bench-fleet', settings, signal, { draw: Math.random });
  const { pool } = bench;
  let told = 0;
  await until(pool, 'frozen', count, signal, (there) => {
    const { refused } = pool.states()[0] ?? { refused: null };
    if (refused !== null) throw new Error(`stopped at ${there} of ${count}: ${refused}`);
    if (there < told + TELL_EACH) return;
    told = there;
    console.error(`${there} frozen after ${rounded((performance.now() - startedAt) / 1_000)} s`);
  });
  const madeMs = performance.now() - startedAt;
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
  const perFrozen = (freeBefore - freeAfter) / count / mib;
  const goal = { baseline: null, ratio: null };
  return [
    { figure: 'frozen desktops at once', value: count, unit: '', ...goal, goal: '>= 1024', met: count >= 1_024 },
    {
      ...{ figure: 'made in, each', value: rounded(madeMs / count), unit: 'ms', ...goal },
      ...{ goal: 'reported', met: true },
    },
    {
      ...{
        figure: 'memory of the host, each',
        value: rounded(perFrozen),
        unit: 'MiB',
        baseline: rounded(median(each) / mib),
      },
      ...{ ratio: null, goal: '< 16 MiB', met: perFrozen < 16 },
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
