import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import type { Engine } from '../../runner/replica/engine.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import type { Template } from '../../runner/replica/template.ts';
import { ownMemory, usageOf, writtenBytes } from '../../runner/replica/usage.ts';
import { playBare, STEPS } from './bare-episode.ts';
import { type Figure, median, rounded } from './figure.ts';

const EACH = 8;
/** QEMU gives back what it needed for starting when it has been idle for a moment. */
const REST_MS = 2_000;
const IDLE_MS = 5_000;
const mib = 2 ** 20;

/** What one kind of replica takes. */
interface KindRow {
  kind: string;
  memoryMib: number;
  /** In words: of a processor, or of its time. */
  processor: string;
}

export interface Kinds {
  rows: Record<string, string>[];
  figures: Figure[];
}

/** Frozen, hot, running idle and acting replicas, each with its memory and processor; what a hot one answers, and how soon. */
export async function kindFigures(
  engine: Engine,
  template: Template,
  imageDiskBytes: number,
  signal: AbortSignal,
): Promise<Kinds> {
  const replicas = Array.from({ length: EACH }, () => new VirtualReplica(engine, template));
  const memory = (): number => median(replicas.map(({ machine }) => (ownMemory(machine.pid) ?? Number.NaN) / mib));
  try {
    for (const replica of replicas) await replica.prepare();
    await sleep(REST_MS);
    const kinds: KindRow[] = [{ kind: 'frozen', memoryMib: memory(), processor: 'none' }];
    for (const replica of replicas) await replica.thaw();
    await sleep(REST_MS);
    kinds.push({ kind: 'hot', memoryMib: memory(), processor: 'none' });
    const answers = [];
    for (const replica of replicas) answers.push(await firstAnswers(replica, signal));
    const before = await Promise.all(replicas.map(({ machine }) => usageOf(machine)));
    await sleep(IDLE_MS);
    const after = await Promise.all(replicas.map(({ machine }) => usageOf(machine)));
    const idle = median(after.map((usage, n) => ((usage?.cpuMs ?? 0) - (before[n]?.cpuMs ?? 0)) / IDLE_MS));
    kinds.push({ kind: 'running, idle', memoryMib: memory(), processor: `${rounded(idle * 100)} % of one` });
    await flushed(engine);
    const freeBefore = await engine.area.freeBytes();
    const stepMs: number[] = [];
    for (const [number, replica] of replicas.entries()) {
      const from = await usageOf(replica.machine);
      await playBare(replica, number, signal);
      const to = await usageOf(replica.machine);
      if (from && to) stepMs.push((to.cpuMs - from.cpuMs) / STEPS);
    }
    await flushed(engine);
    const grownBytes = (freeBefore - (await engine.area.freeBytes())) / EACH;
    const written = median(await Promise.all(replicas.map(async ({ machine }) => (await writtenBytes(machine)) ?? 0)));
    kinds.push({ kind: 'acting', memoryMib: memory(), processor: `${rounded(median(stepMs))} ms a step` });
    const saved = 100 * (1 - grownBytes / imageDiskBytes);
    return {
      rows: kinds.map(({ kind, memoryMib, processor }) => ({
        ...{ replica: kind, 'memory of its own': `${rounded(memoryMib)} MiB`, processor },
      })),
      figures: [
        below('a hot one: its helper answers', median(answers.map(({ helperMs }) => helperMs)), 'ms', 50),
        below('a hot one: a command is done', median(answers.map(({ commandMs }) => commandMs)), 'ms', 150),
        below('a hot one: its clock is off by no more than', median(answers.map(({ skewMs }) => skewMs)), 'ms', 50),
        {
          ...{
            figure: 'disk written by a ten-step episode',
            value: rounded(Math.max(grownBytes, 0) / mib),
            unit: 'MiB',
          },
          ...{ baseline: rounded(imageDiskBytes / mib), ratio: rounded(saved), goal: '> 99 % saved', met: saved > 99 },
        },
        {
          ...{ figure: 'the same by the account of QEMU', value: rounded(written / mib), unit: 'MiB', baseline: null },
          ...{ ratio: null, goal: 'reported', met: true },
        },
      ],
    };
  } finally {
    await Promise.all(replicas.map((replica) => replica.discard()));
  }
}

function below(figure: string, value: number, unit: string, goal: number): Figure {
  return {
    figure,
    value: rounded(value),
    unit,
    baseline: null,
    ratio: null,
    goal: `< ${goal} ${unit}`,
    met: value < goal,
  };
}

/** From a paused, hot replica: until its helper answers, until a command is done; then how far its clock may be from ours. */
async function firstAnswers(
  replica: VirtualReplica,
  signal: AbortSignal,
): Promise<{ helperMs: number; commandMs: number; skewMs: number }> {
  const startedAt = performance.now();
  await replica.lease(signal);
  const helperMs = performance.now() - startedAt;
  await replica.guest.exec({ argv: ['true'], timeoutMs: 30_000 }, signal);
  const commandMs = performance.now() - startedAt;
  const asked = Date.now();
  const { stdout } = await replica.guest.exec({ argv: ['date', '+%s%3N'], timeoutMs: 30_000 }, signal);
  const guest = Number(stdout.toString());
  // It read its clock at some moment of the trip: off by what it lies outside of that.
  return { helperMs, commandMs, skewMs: Math.max(0, asked - guest, guest - Date.now()) };
}

/** What is still in memory has no place on the disk yet. */
async function flushed({ area }: Engine): Promise<void> {
  await execa('sync', ['--file-system', area.path]);
}
