import { pino } from 'pino';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { openEngine } from '../../runner/replica/open-engine.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { ensureTemplate } from '../../runner/replica/template.ts';
import { openArea } from '../../runner/storage/area.ts';
import { fare } from '../support/neighbours.ts';
import { type Figure, rounded } from './figure.ts';
import { claimNext, openBenchPool } from './pools.ts';

/** Steps measured in each round. */
const STEPS = 120;
const ACTING = 2;
const SOUND = 56;
const SICK = 8;
/** More than are made while the steps are taken. */
const STORM = 400;

/** How long a step takes beside a storm of clones: with the pool's pacing, without it, and with no clones at all, in turns. */
export async function neighbourFigures(image: Image, signal: AbortSignal): Promise<Figure[]> {
  const quiet = await round(image, { frozen: 0 }, signal);
  const paced = await round(image, { frozen: STORM }, signal);
  const unpaced = await round(image, { frozen: STORM, restFactor: 0 }, signal);
  const ratio = quiet.p95 / paced.p95;
  return [
    {
      ...{ figure: 'p95 of a step beside a storm of clones, paced', value: rounded(paced.p95), unit: 'ms' },
      ...{ baseline: rounded(quiet.p95), ratio: rounded(ratio), goal: '> 0.67 of none', met: ratio > 0.67 },
    },
    {
      ...{ figure: 'the same, not paced', value: rounded(unpaced.p95), unit: 'ms', baseline: rounded(quiet.p95) },
      ...{ ratio: rounded(quiet.p95 / unpaced.p95), goal: 'reported', met: true },
    },
    {
      ...{ figure: 'clones made meanwhile, paced', value: paced.clones, unit: '', baseline: unpaced.clones },
      ...{ ratio: rounded(paced.clones / Math.max(1, unpaced.clones)), goal: 'reported', met: true },
    },
  ];
}

/** Success and p95 of 56 replicas beside 8 whose state managers are sick, against 64 that are sound, in the same run. */
export async function sicknessFigures(image: Image, signal: AbortSignal): Promise<Figure[]> {
  const { dataDir, cacheDir, diskFloorBytes, accelerator, qemuUser } = readConfig(process.env);
  await using area = await openArea({ dataDir, floorBytes: diskFloorBytes }, signal);
  const settings = { accelerator, qemuUser, diskFloorBytes, cacheDir };
  const order = { area, runnerId: 'bench-sickness', settings, log: pino({ level: 'silent' }), signal };
  await using opened = await openEngine(order, image.kernelPath);
  const template = await ensureTemplate(opened.engine, image, () => undefined, signal);
  const control = await fare(opened.engine, template, { replicas: SOUND, sick: 0 });
  const beside = await fare(opened.engine, template, { replicas: SOUND + SICK, sick: SICK });
  const [p95, baseline] = [beside, control].map(({ stepMs }) => stepMs[Math.floor(stepMs.length * 0.95)] ?? Number.NaN);
  const ratio = (baseline ?? Number.NaN) / (p95 ?? Number.NaN);
  return [
    {
      ...{ figure: `replicas that succeed beside ${SICK} sick ones`, value: beside.succeeded, unit: '' },
      ...{ baseline: control.succeeded, ratio: beside.succeeded / control.succeeded, goal: `${SOUND}` },
      met: beside.succeeded === SOUND,
    },
    {
      ...{
        figure: 'p95 of their steps',
        value: rounded(p95 ?? Number.NaN),
        unit: 'ms',
        baseline: rounded(baseline ?? Number.NaN),
      },
      ...{ ratio: rounded(ratio), goal: '> 0.67', met: ratio > 0.67 },
    },
  ];
}

async function round(
  image: Image,
  { frozen, restFactor }: { frozen: number; restFactor?: number },
  signal: AbortSignal,
): Promise<{ p95: number; clones: number }> {
  const pace = restFactor === undefined ? {} : { pace: { restFactor } };
  const settings = { acting: ACTING, ready: ACTING, frozen };
  await using bench = await openBenchPool(image, 'bench-neighbours', settings, signal, pace);
  const { pool } = bench;
  const acting = await Promise.all(Array.from({ length: ACTING }, () => claimNext(pool, image.name, signal)));
  const before = frozenOf(pool);
  const times = (await Promise.all(acting.map((replica) => steps(replica, signal)))).flat();
  const clones = frozenOf(pool) - before;
  await Promise.all(acting.map((replica) => replica.discard()));
  times.sort((a, b) => a - b);
  return { p95: times[Math.floor(times.length * 0.95)] ?? Number.NaN, clones };
}

const frozenOf = (pool: VirtualPool): number => pool.phases().frozen ?? 0;

/** Clicks that open and close a menu, each with the look at what came of it. @returns milliseconds each */
async function steps(replica: VirtualReplica, signal: AbortSignal): Promise<number[]> {
  const times: number[] = [];
  for (let n = 0; n < STEPS / ACTING; n += 1) {
    const startedAt = performance.now();
    const button = n % 2 === 0 ? ('right' as const) : ('left' as const);
    await replica.act({ type: 'click', x: 400, y: 300, button, count: 1, modifiers: [] }, signal);
    await replica.settle({ minMs: 100, maxMs: 10_000 }, signal);
    await replica.screenshot(signal);
    times.push(performance.now() - startedAt);
  }
  return times;
}
