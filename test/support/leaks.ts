import { readdir, readFile, readlink } from 'node:fs/promises';
import path from 'node:path';

/** What tells the things of one test run from those of everybody else on the machine. */
export interface TestRun {
  /** `NAME=value` in the environment of every process that the tests start. */
  mark: string;
  /** Folders in which only this run works. */
  own: readonly string[];
  /** Folders that runs share. */
  shared: readonly string[];
}

interface Process {
  pid: number;
  parent: number;
  args: string[];
  environment: string[];
}

/**
 * Everything of a run that is there now, a line each: processes with its mark, machines, loop mounts.
 * A machine has an environment of its own and no mark. It is the run's when a process of the run started it, when it has
 * files in the run's own folders open or names one, or in the shared ones and no runner that it belongs to.
 */
export async function findLeaks(run: TestRun): Promise<string[]> {
  const all = new Map((await allProcesses()).map((process) => [process.pid, process]));
  const marked = [...all.values()].filter(({ environment }) => environment.includes(run.mark));
  const ofRun = new Set([process.pid, ...marked.map(({ pid }) => pid)]);
  const left: string[] = [];
  for (const found of marked) {
    const shown = found.args.join(' ').trim();
    // A zombie has no command any more; vitest's workers and the transformer it runs end with it.
    if (shown !== '' && !/vitest|esbuild/.test(shown)) left.push(`process ${found.pid}: ${shown.slice(0, 160)}`);
  }
  for (const found of all.values()) {
    const name = machineName(found.args);
    if (name === null || marked.includes(found)) continue;
    const started = ancestors(found, all).some((pid) => ofRun.has(pid));
    const files = await openFiles(found.pid);
    const inside = (folders: readonly string[]): boolean =>
      found.args.some((arg) => namesFileIn(arg, folders)) || files.some((file) => isIn(file, folders));
    if (started || inside(run.own) || (inside(run.shared) && !(await isNode(found.parent)))) {
      left.push(`machine ${found.pid}: ${name}`);
    }
  }
  return [...left, ...(await loopMountsIn([...run.own, ...run.shared]))];
}

/** What `-name` says, of a machine of gymbus; null of any other process. */
function machineName(args: readonly string[]): string | null {
  const name = args[args.indexOf('-name') + 1];
  return args.includes('-name') && name?.startsWith('gymbus-') ? name : null;
}

function ancestors({ parent }: Process, all: ReadonlyMap<number, Process>): number[] {
  const found: number[] = [];
  for (let pid = parent; pid > 0 && !found.includes(pid); pid = all.get(pid)?.parent ?? 0) found.push(pid);
  return found;
}

/** An argument may be a path, or have one in it: `socket,id=agent,path=/var/...`. */
function namesFileIn(argument: string, folders: readonly string[]): boolean {
  return folders.some((folder) => `=${argument}`.includes(`=${folder}/`));
}

function isIn(file: string, folders: readonly string[]): boolean {
  return folders.some((folder) => file.startsWith(`${folder}/`));
}

/** Memory and disk of a machine are inherited descriptors: no argument names them. */
async function openFiles(pid: number | string): Promise<string[]> {
  const folder = `/proc/${pid}/fd`;
  const links = (await readdir(folder).catch(() => [])).map((fd) => readlink(`${folder}/${fd}`).catch(() => ''));
  return Promise.all(links);
}

/** Whether it is a Node program, as every runner is. */
async function isNode(pid: number): Promise<boolean> {
  const program = await readlink(`/proc/${pid}/exe`).catch(() => '');
  return path.basename(program).startsWith('node');
}

/** Loop mounts whose backing file lies in one of these folders, and in which nobody has a file open: whoever works in one unmounts it. */
async function loopMountsIn(folders: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const line of (await readFile('/proc/mounts', 'utf8')).split('\n')) {
    const [device = '', point = ''] = line.split(' ');
    if (!device.startsWith('/dev/loop')) continue;
    const backing = await readFile(`/sys/block/${path.basename(device)}/loop/backing_file`, 'utf8').catch(() => '');
    if (!folders.some((folder) => backing.startsWith(`${folder}/`))) continue;
    if (!(await isInUse(point))) found.push(`mount ${point} of ${backing.trim()}`);
  }
  return found;
}

async function isInUse(folder: string): Promise<boolean> {
  for (const pid of await pids()) {
    if ((await openFiles(pid)).some((file) => file === folder || isIn(file, [folder]))) return true;
  }
  return false;
}

async function pids(): Promise<string[]> {
  return (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
}

async function allProcesses(): Promise<Process[]> {
  return Promise.all(
    (await pids()).map(async (pid) => {
      const [stat, cmdline, environ] = await Promise.all(
        (['stat', 'cmdline', 'environ'] as const).map((name) =>
          readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => ''),
        ),
      );
      // The name in parentheses may hold anything; the parent is the second field behind it.
      const fields = (stat ?? '').slice((stat ?? '').lastIndexOf(')') + 2).split(' ');
      return {
        pid: Number(pid),
        parent: Number(fields[1] ?? 0),
        args: (cmdline ?? '').split('\0'),
        environment: (environ ?? '').split('\0'),
      };
    }),
  );
}
