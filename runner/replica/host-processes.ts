import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { readStat } from '../qemu/proc-stat.ts';

/** A QEMU found running on this host. */
export interface FoundProcess {
  pid: number;
  uuid: string;
  /** Clock ticks since the host's boot, when it started. */
  startTicks: number;
}

/** SIGKILL needs no cooperation; more than this and the kernel itself is stuck. */
const GONE_DEADLINE_MS = 10_000;

/** Every process of this host that runs QEMU (or its launcher) with a `-uuid`. */
export async function qemuProcesses(): Promise<FoundProcess[]> {
  const found: FoundProcess[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const pid = Number(name);
    const args = (await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '')).split('\0');
    const at = args.indexOf('-uuid');
    const uuid = args[at + 1];
    if (at < 0 || !uuid || !args.includes('-nodefaults')) continue;
    const startTicks = await processStart(pid);
    if (startTicks !== null) found.push({ pid, uuid, startTicks });
  }
  return found;
}

/** When a process started, in clock ticks since the host's boot; null when there is none, or only its remains. */
async function processStart(pid: number): Promise<number | null> {
  const stat = readStat(`/proc/${pid}`);
  return stat === null || stat[0] === 'Z' ? null : Number(stat[19]);
}

/** Now, in clock ticks since the host's boot. */
export async function nowTicks(): Promise<number> {
  const uptime = await readFile('/proc/uptime', 'latin1');
  return Math.floor(Number(uptime.split(' ')[0]) * 100);
}

/** Kills a process unless its pid meanwhile stands for another. @throws when it is still there after the deadline */
export async function killFound(found: FoundProcess): Promise<void> {
  if ((await processStart(found.pid)) !== found.startTicks) return;
  try {
    process.kill(found.pid, 'SIGKILL');
  } catch (error) {
    // Gone between the two: a runner's machines die with it while the next one reaps.
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return;
    throw error;
  }
  const end = performance.now() + GONE_DEADLINE_MS;
  while ((await processStart(found.pid)) === found.startTicks) {
    if (performance.now() > end) throw new Error(`qemu (pid ${found.pid}) is still there after SIGKILL`);
    await sleep(10);
  }
}
