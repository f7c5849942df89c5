import { readFile } from 'node:fs/promises';

/** A process beyond its number, which may be given to another: the same start, the same arguments, the same boot. */
export interface ProcessIdentity {
  pid: number;
  /** Clock ticks since boot. */
  startTicks: number;
  bootId: string;
  /** Absent where a process may rename itself. */
  argv?: readonly string[] | undefined;
}

/** Null when there is no such process, or it is only waited for. */
export async function identify(pid: number): Promise<ProcessIdentity | null> {
  try {
    const [stat, cmdline, bootId] = await Promise.all([
      readFile(`/proc/${pid}/stat`, 'utf8'),
      readFile(`/proc/${pid}/cmdline`, 'utf8'),
      readFile('/proc/sys/kernel/random/boot_id', 'utf8'),
    ]);
    // The name in parentheses may hold anything; fields are counted from behind it. State is the 3rd, start the 22nd.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return null;
    const argv = cmdline.split('\0').slice(0, -1);
    return { pid, startTicks: Number(fields[19]), bootId: bootId.trim(), argv };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // ESRCH: it went away while it was read.
    if (code === 'ENOENT' || code === 'ESRCH') return null;
    throw error;
  }
}

/** Whether that very process still runs. */
export async function stillRuns(known: ProcessIdentity): Promise<boolean> {
  const now = await identify(known.pid);
  return (
    now !== null &&
    now.startTicks === known.startTicks &&
    now.bootId === known.bootId &&
    (known.argv === undefined || known.argv.join('\0') === now.argv?.join('\0'))
  );
}
