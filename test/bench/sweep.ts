import { readFile } from 'node:fs/promises';
import os from 'node:os';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { playBare, STEPS } from './bare-episode.ts';
import { rounded } from './figure.ts';
import { claimNext, openBenchPool, untilHot } from './pools.ts';

/** K: replicas that act in each group, of one processor. */
const SIZES = [1, 2, 4, 8, 16, 32];
/** Episodes for each replica that acts, so that the start and the end of a round weigh little. */
const EPISODES_EACH = 3;
/** With fewer steps than so many times those of the round before, more replicas are of no use. */
const GAIN = 1.1;
/** With less idle time than this it is the processors that bind. */
const IDLE = 0.1;

interface Round {
  k: number;
  acting: number;
  stepsPerSecond: number;
  idle: number;
  bound: string;
}

/**
 * Plays the same episodes with K = 1, 2, 4, ... replicas in each group of one processor, until more of them are of no use.
 * @param thinkMs of a policy, at each step: while it thinks, the processor is for others @returns text to print
 */
export async function sweep(
  image: Image,
  thinkMs: number,
  signal: AbortSignal,
): Promise<{ rows: Record<string, string>[]; summary: string }> {
  const rounds: Round[] = [];
  for (const k of SIZES) {
    const round = await playRound(image, k, thinkMs, signal);
    if (round === null) break;
    const before = rounds.at(-1);
    rounds.push(round);
    console.error(`K = ${k}: ${rounded(round.stepsPerSecond)} steps/s`);
    if (before && round.stepsPerSecond < before.stepsPerSecond * GAIN) break;
  }
  const [first] = rounds;
  const best = rounds.reduce((one, other) => (other.stepsPerSecond > one.stepsPerSecond ? other : one));
  if (!first) throw new Error('no round could be played');
  const { usdPerDay } = readConfig(process.env);
  const price = usdPerDay ?? 100;
  const cost = ({ stepsPerSecond }: Round): string => rounded((price * 1e3) / (stepsPerSecond * 86_400)).toString();
  const rows = rounds.map((round) => ({
    K: String(round.k),
    acting: String(round.acting),
    'steps/s': String(rounded(round.stepsPerSecond)),
    'against K=1': String(rounded(round.stepsPerSecond / first.stepsPerSecond)),
    'processors idle': `${Math.round(round.idle * 100)} %`,
    'bound by': round.bound,
    'usd / 1000 steps': cost(round),
    'usd / replica and day': String(rounded(price / round.acting)),
  }));
  const crossover = rounds.find(({ bound }) => bound !== 'the episodes themselves');
  const summary = [
    `best K: ${best.k}, ${rounded(best.stepsPerSecond / first.stepsPerSecond)} times the steps of K=1 for the same price`,
    `(${usdPerDay === undefined ? 'a host at 100 usd a day is assumed; GYMBUS_USD_PER_DAY says otherwise' : `a host at ${usdPerDay} usd a day`});`,
    crossover ? `from K=${crossover.k} on ${crossover.bound} binds` : 'nothing of the host binds up to the largest K',
  ].join(' ');
  return { rows, summary };
}

/** @returns null when the host has no room for so many */
async function playRound(image: Image, k: number, thinkMs: number, signal: AbortSignal): Promise<Round | null> {
  await using bench = await openBenchPool(image, 'bench-sweep', { groupCpus: 1, perGroup: k }, signal);
  const { pool } = bench;
  const { acting, bound } = pool.capacity;
  if (bound !== 'group') {
    console.error(`K = ${k}: ${bound} allows no more than ${acting} to act`);
    return null;
  }
  await untilHot(pool, Math.min(acting, pool.capacity.ready), signal);
  const episodes = acting * EPISODES_EACH;
  const before = await processorTimes();
  const startedAt = performance.now();
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let number = next++; number < episodes; number = next++) {
      const replica = await claimNext(pool, image.name, signal);
      await playBare(replica, number, signal, { thinkMs });
      void replica.discard();
    }
  };
  await Promise.all(Array.from({ length: acting }, worker));
  const seconds = (performance.now() - startedAt) / 1_000;
  const after = await processorTimes();
  const idle = (after.idle - before.idle) / (after.all - before.all);
  return {
    ...{ k, acting, idle, stepsPerSecond: (episodes * STEPS) / seconds },
    bound: idle < IDLE ? `processor (${os.availableParallelism()} of them)` : 'the episodes themselves',
  };
}

/** Clock ticks of all processors since the host's boot. */
async function processorTimes(): Promise<{ idle: number; all: number }> {
  const line = (await readFile('/proc/stat', 'latin1')).split('\n')[0] ?? '';
  const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((sum, part) => sum + part, 0);
  return { idle: (ticks[3] ?? 0) + (ticks[4] ?? 0), all };
}
