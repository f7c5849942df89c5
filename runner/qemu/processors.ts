import { z } from 'zod';
import { readKernelFile, readStat, waitsForDisk } from './proc-stat.ts';
import type { QmpClient } from './qmp.ts';

const Cpus = z.array(z.object({ 'thread-id': z.number() }));

/** A moment of the guest's processors, as the host's scheduler accounts for them. Times are of all of them, since the machine's start. */
export interface Load {
  /** Whether at this moment none of them ran or waited for its turn, and nothing of the machine waited for the host's disk. */
  asleep: boolean;
  ranMs: number;
  /** Waited for its turn: on a busy host a guest with work to do gets little time. Booked when the wait is over. */
  waitedMs: number;
}

/** The virtual processors of one machine. */
export class Processors {
  readonly #qmp: QmpClient;
  readonly #pid: number;
  #tasks: string[] | undefined;

  constructor(qmp: QmpClient, pid: number) {
    this.#qmp = qmp;
    this.#pid = pid;
  }

  /**
   * @returns null where the kernel does not account for it, or the machine is gone
   * @throws QmpSilent, QmpError
   */
  async load(): Promise<Load | null> {
    this.#tasks ??= await this.#find();
    const loads: Load[] = [];
    for (const task of this.#tasks) {
      const load = loadOf(task);
      if (load === null) return null;
      loads.push(load);
    }
    return {
      asleep: loads.every(({ asleep }) => asleep) && !waitsForDisk(this.#pid),
      ranMs: loads.reduce((sum, { ranMs }) => sum + ranMs, 0),
      waitedMs: loads.reduce((sum, { waitedMs }) => sum + waitedMs, 0),
    };
  }

  async #find(): Promise<string[]> {
    const cpus = Cpus.parse(await this.#qmp.execute('query-cpus-fast'));
    return cpus.map((cpu) => `/proc/${this.#pid}/task/${cpu['thread-id']}`);
  }
}

function loadOf(task: string): Load | null {
  // The state first: what was booked by then is in the sums read after it.
  const stat = readStat(task);
  const times = readKernelFile(`${task}/schedstat`);
  if (stat === null || times === null) return null;
  const [ran = Number.NaN, waited = Number.NaN] = times.split(' ').map(Number);
  return { asleep: stat[0] === 'S', ranMs: ran / 1e6, waitedMs: waited / 1e6 };
}
