import os from 'node:os';
import { pino } from 'pino';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { readStat } from '../../runner/qemu/proc-stat.ts';
import { openEngine } from '../../runner/replica/open-engine.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { ensureTemplate } from '../../runner/replica/template.ts';
import { openArea } from '../../runner/storage/area.ts';
import { playBare } from './bare-episode.ts';
import { rounded } from './figure.ts';

const EPISODES = 8;
/** Of the kernel's account of a process: 100 a second on Linux, whatever the kernel's own clock. */
const TICK_MS = 10;

/** Mean processor time of one part of an episode, in milliseconds. */
export interface PartCost {
  part: string;
  qemuMs: number;
  /** Of this process: what a runner does for it, bus and storage left out. */
  runnerMs: number;
}

/**
 * Where the processor time of a ten-step episode goes. Played one at a time, so that nothing waits for anything: what is found is work,
 * and the host's cores divided by it are the most episodes it can carry.
 */
export async function episodeCost(image: Image, cacheDir: string, signal: AbortSignal): Promise<PartCost[]> {
  const config = readConfig(process.env);
  await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal);
  const log = pino({ level: 'silent' });
  const { accelerator, qemuUser, diskFloorBytes } = config;
  const settings = { accelerator, qemuUser, diskFloorBytes, cacheDir };
  await using opened = await openEngine({ area, runnerId: 'bench-cost', settings, log, signal }, image.kernelPath);
  const { engine } = opened;
  const template = await ensureTemplate(engine, image, () => undefined, signal);
  const account = new Account();
  for (let number = 0; number < EPISODES; number += 1) {
    await using replica = new VirtualReplica(engine, template);
    account.begin();
    await replica.prepare();
    account.enter('clone', replica.machine.pid);
    await replica.thaw();
    account.enter('restore gate', replica.machine.pid);
    await replica.lease(signal);
    let part = 'claim';
    const next = (name: string): void => {
      account.enter(part, replica.machine.pid);
      part = name;
    };
    await playBare(replica, number, signal, { onPhase: next });
    next('');
  }
  return account.means(EPISODES);
}

/** @returns lines to print */
export function costTable(parts: readonly PartCost[]): Record<string, string>[] {
  const sum = (of: (part: PartCost) => number): number => parts.reduce((total, part) => total + of(part), 0);
  const all = { part: 'in all', qemuMs: sum((part) => part.qemuMs), runnerMs: sum((part) => part.runnerMs) };
  return [...parts, all].map(({ part, qemuMs, runnerMs }) => ({
    part,
    qemu: `${rounded(qemuMs)} ms`,
    runner: `${rounded(runnerMs)} ms`,
  }));
}

/** @returns episodes a minute that this host's cores could carry, were they never idle */
export function mostPerMinute(parts: readonly PartCost[]): number {
  const ms = parts.reduce((total, { qemuMs, runnerMs }) => total + qemuMs + runnerMs, 0);
  return (os.availableParallelism() * 60_000) / ms;
}

class Account {
  readonly #parts = new Map<string, { qemuMs: number; runnerMs: number }>();
  #qemuMs = 0;
  #runnerMs = 0;

  begin(): void {
    this.#qemuMs = 0;
    this.#runnerMs = ownMs();
  }

  /** Books what was used since the last call. */
  enter(part: string, pid: number): void {
    const stat = readStat(`/proc/${pid}`);
    if (stat === null) throw new Error(`the machine of process ${pid} is gone`);
    const qemuMs = (Number(stat[11]) + Number(stat[12])) * TICK_MS;
    const runnerMs = ownMs();
    const booked = this.#parts.get(part) ?? { qemuMs: 0, runnerMs: 0 };
    booked.qemuMs += qemuMs - this.#qemuMs;
    booked.runnerMs += runnerMs - this.#runnerMs;
    this.#parts.set(part, booked);
    this.#qemuMs = qemuMs;
    this.#runnerMs = runnerMs;
  }

  means(count: number): PartCost[] {
    return [...this.#parts].map(([part, { qemuMs, runnerMs }]) => ({
      part,
      qemuMs: qemuMs / count,
      runnerMs: runnerMs / count,
    }));
  }
}

function ownMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
