import { readdir, readFile, readlink } from 'node:fs/promises';

export interface ProcessInfo {
  pid: number;
  parent: number;
  /** Its arguments, blanks between them. */
  command: string;
}

/** Every process there is, zombies left out. */
export async function processes(): Promise<ProcessInfo[]> {
  const found: ProcessInfo[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const [stat, cmdline] = await Promise.all(
      ['stat', 'cmdline'].map((file) => readFile(`/proc/${name}/${file}`, 'latin1').catch(() => '')),
    );
    const fields = (stat ?? '').slice((stat ?? '').lastIndexOf(')') + 2).split(' ');
    if (!cmdline || fields[0] === 'Z') continue;
    found.push({ pid: Number(name), parent: Number(fields[1]), command: cmdline.replaceAll('\0', ' ').trim() });
  }
  return found;
}

/** A process's ancestors, the nearest first. */
export async function ancestors(pid: number): Promise<ProcessInfo[]> {
  const all = new Map((await processes()).map((process) => [process.pid, process]));
  const found: ProcessInfo[] = [];
  for (let at = all.get(all.get(pid)?.parent ?? 0); at; at = all.get(at.parent)) found.push(at);
  return found;
}

/** A process and everything it started, however deep. */
export async function descendants(pid: number): Promise<ProcessInfo[]> {
  const all = await processes();
  const found = all.filter((process) => process.pid === pid);
  for (const one of found) found.push(...all.filter(({ parent }) => parent === one.pid));
  return found;
}

/** Files below a folder that some process has open. */
export async function openIn(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const { pid } of await processes()) {
    for (const fd of await readdir(`/proc/${pid}/fd`).catch(() => [])) {
      const target = await readlink(`/proc/${pid}/fd/${fd}`).catch(() => '');
      if (target.startsWith(`${folder}/`)) found.push(target);
    }
  }
  return found;
}
