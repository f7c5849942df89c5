import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import type { QmpClient } from './qmp.ts';

const Cpus = z.array(z.object({ 'thread-id': z.number() }));

/** A moment of the guest's processors, as the host's scheduler accounts for them. */
export interface Load {
  /** Whether none of them ran or waited for its turn at this moment. */
  asleep: boolean;
  /**
   * Milliseconds that they ran or waited for their turn, in all, since the machine was started. The wait counts: on a busy host a
   * guest with work to do gets little time, and one without it sleeps all the same. True only of a moment when all are asleep,
   * for a wait is booked when it is over.
   */
  busyMs: number;
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
      const load = await loadOf(task);
      if (load === null) return null;
      loads.push(load);
    }
    return {
      asleep: loads.every(({ asleep }) => asleep),
      busyMs: loads.reduce((sum, { busyMs }) => sum + busyMs, 0),
    };
  }

  async #find(): Promise<string[]> {
    const cpus = Cpus.parse(await this.#qmp.execute('query-cpus-fast'));
    return cpus.map((cpu) => `/proc/${this.#pid}/task/${cpu['thread-id']}`);
  }
}

async function loadOf(task: string): Promise<Load | null> {
  // The state first: what was booked by then is in the sums read after it.
  const stat = await readFile(`${task}/stat`, 'latin1').catch(() => null);
  const times = await readFile(`${task}/schedstat`, 'latin1').catch(() => null);
  if (stat === null || times === null) return null;
  const [ran = Number.NaN, waited = Number.NaN] = times.split(' ').map(Number);
  // The name in parentheses may hold anything, spaces and parentheses included.
  const state = stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
  return { asleep: state !== 'R', busyMs: (ran + waited) / 1e6 };
}
