import { readFile } from 'node:fs/promises';

/**
 * What the kernel says of a process or thread in its `stat` file, without its number and name: the state comes first.
 * @param folder e.g. `/proc/17` @returns null when there is none
 */
export async function readStat(folder: string): Promise<string[] | null> {
  const stat = await readFile(`${folder}/stat`, 'latin1').catch(() => null);
  // The name in parentheses may hold anything, spaces and parentheses included.
  return stat === null ? null : stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
