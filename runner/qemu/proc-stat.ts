import { readdirSync, readFileSync } from 'node:fs';

/**
 * Reads a file that the kernel makes of what it knows: some microseconds, and no disk is waited for. Through the thread pool it would
 * take three times the processor's time, on a busy host much more, and a settling desktop is looked at forty times a second.
 * @returns null when there is none
 */
export function readKernelFile(path: string): string | null {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return null;
  }
}

/**
 * What the kernel says of a process or thread in its `stat` file, without its number and name: the state comes first.
 * @param folder e.g. `/proc/17` @returns null when there is none
 */
export function readStat(folder: string): string[] | null {
  const stat = readKernelFile(`${folder}/stat`);
  // The name in parentheses may hold anything, spaces and parentheses included.
  return stat === null ? null : stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/**
 * Whether a thread of this process waits for the host's disk. A guest whose data is not in the host's memory, or whose template's is not
 * any more, seems to sleep while it has work to do: QEMU's threads read for it, in what the kernel calls an uninterruptible sleep.
 */
export function waitsForDisk(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  try {
    return readdirSync(tasks).some((task) => readStat(`${tasks}/${task}`)?.[0] === 'D');
  } catch {
    return false;
  }
}
