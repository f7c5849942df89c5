import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRoot } from './capabilities.ts';
import { type CgroupFolder, type CgroupPlace, type CgroupPlan, OUR_FOLDER, planCgroups } from './cgroup-plan.ts';

/** What the processes of one cgroup may take together. */
export interface CgroupLimits {
  memoryBytes: number;
  /** Processes and threads. */
  pids: number;
}

/** Asked for by its cgroup's own files, which are gone with it. */
export interface CgroupDeath {
  /** The limit that was reached; null when the host itself had no memory left. */
  memoryLimitBytes: number | null;
}

/** SIGKILL needs no cooperation; more than this and the kernel itself is stuck. */
const EMPTY_DEADLINE_MS = 10_000;
/** Others remove the folders above when the last cgroup in them goes; each try makes them anew. */
const MAKE_TRIES = 5;
/**
 * Beside ordinary processes of the host all replicas together weigh as much as so many of them on each core: as they would one by
 * one, without cgroups. Between replicas all weigh the same.
 */
const WEIGHT_PER_CORE = 3;

/** Reads what the kernel says of this process, and decides. */
export function lookForCgroups(runner: string): CgroupPlan {
  try {
    return planCgroups({
      ...{
        mountinfo: readFileSync('/proc/self/mountinfo', 'utf8'),
        membership: readFileSync('/proc/self/cgroup', 'utf8'),
      },
      ...{ root: isRoot(), runner, isDelegated },
      controllersOf: (folder) => readWords(path.join(folder, 'cgroup.controllers')),
    });
  } catch (error) {
    return { version: null, reason: `this kernel says nothing of cgroups: ${(error as Error).message}` };
  }
}

/** The cgroups of one runner's replicas. */
export class CgroupTree {
  readonly #place: CgroupPlace;
  readonly #cores: number;

  /** @param cores of the host, for the weight of all replicas together */
  constructor(place: CgroupPlace, cores: number) {
    this.#place = place;
    this.#cores = cores;
  }

  /** Moves this process out of the way, where it is in a cgroup that was delegated to it. @throws when it may not */
  async open(): Promise<void> {
    const { delegated } = this.#place;
    if (!delegated) return;
    await mkdir(delegated.leaf, { recursive: true });
    // Children that this process has meanwhile, too: none may be left when controllers are turned on.
    for (const pid of readWords(path.join(delegated.folder, 'cgroup.procs'))) {
      await writeFile(path.join(delegated.leaf, 'cgroup.procs'), pid).catch(ifGone);
    }
    await turnOn(delegated.folder, this.#place.groups);
    // Whoever steers the replicas may have half of the machine, of which it needs little, at once.
    await writeFile(path.join(delegated.leaf, 'cpu.weight'), String(this.#weightV2)).catch(ifGone);
  }

  /** In one line, for people. */
  get description(): string {
    const { version, groups, delegated } = this.#place;
    const controllers = groups.flatMap((group) => group.controllers).join(', ');
    const where = groups.map(({ folder }) => folder).join(', ');
    return `cgroups version ${version}${delegated ? ', delegated' : ''} (${controllers}) in ${where}`;
  }

  get boundsMemory(): boolean {
    return this.#place.groups.some(({ controllers }) => controllers.includes('memory'));
  }

  /** What `make` makes, to be put on record before it does. */
  foldersOf(id: string): string[] {
    return this.#place.groups.map(({ folder }) => path.join(folder, id));
  }

  /** @returns the files to which a process writes 0 to join @throws what the kernel refuses; `removeCgroup` clears up */
  async make(id: string, limits: CgroupLimits): Promise<string[]> {
    const joins: string[] = [];
    // One after the other: where one fails, none is made after that, when others clear up already.
    for (const group of this.#place.groups) joins.push(await this.#make(group, id, limits));
    return joins;
  }

  async #make(group: CgroupFolder, id: string, limits: CgroupLimits): Promise<string> {
    const folder = path.join(group.folder, id);
    for (let tries = 1; ; tries += 1) {
      try {
        await mkdir(folder).catch(ifThere);
        break;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || tries === MAKE_TRIES) throw error;
        await this.#makeAbove(group).catch(ifGone);
      }
    }
    const set = (name: string, value: number): Promise<void> => writeFile(path.join(folder, name), String(value));
    const v1 = this.#place.version === 1;
    if (group.controllers.includes('memory')) {
      await set(v1 ? 'memory.limit_in_bytes' : 'memory.max', limits.memoryBytes);
    }
    if (group.controllers.includes('pids')) await set('pids.max', limits.pids);
    // A single thread that moves itself does not wait for the kernel's lock of all processes (6 to 18 ms); version 2 moves whole processes.
    return path.join(folder, v1 ? 'tasks' : 'cgroup.procs');
  }

  /** The folders above, with their controllers turned on, the topmost first. */
  async #makeAbove(group: CgroupFolder): Promise<void> {
    const weigh = group.controllers.includes('cpu');
    for (const folder of oursAbove(group.folder).reverse()) {
      await mkdir(folder).catch(ifThere);
      if (this.#place.version === 2) {
        await turnOn(path.dirname(folder), [group]);
        await turnOn(folder, [group]);
        if (weigh) await writeFile(path.join(folder, 'cpu.weight'), String(this.#weightV2));
      } else if (weigh) {
        await writeFile(path.join(folder, 'cpu.shares'), String(Math.min(262_144, 1_024 * this.#weight)));
      }
    }
  }

  get #weight(): number {
    return WEIGHT_PER_CORE * this.#cores;
  }

  get #weightV2(): number {
    return Math.min(10_000, 100 * this.#weight);
  }
}

/**
 * How a process of a cgroup came to be killed: by the kernel, for want of memory.
 * @param folders one replica's @returns null when it was not, or the cgroup is gone
 */
export async function oomDeath(folders: readonly string[]): Promise<CgroupDeath | null> {
  for (const folder of folders) {
    const read = (name: string): Promise<string> => readFile(path.join(folder, name), 'utf8').catch(() => '');
    const v2 = await read('memory.events');
    const v1 = await read('memory.oom_control');
    if (count(v2 || v1, 'oom_kill') === 0) continue;
    // The host's own lack of memory kills without the limit having been reached.
    const reached = v2 ? count(v2, 'oom') > 0 : Number(await read('memory.failcnt')) > 0;
    const limit = Number(await read(v2 ? 'memory.max' : 'memory.limit_in_bytes'));
    return { memoryLimitBytes: reached && Number.isFinite(limit) ? limit : null };
  }
  return null;
}

/** Kills what is in a cgroup, removes it, and those of our folders above it that are then empty. Idempotent. @throws when the kernel does not let go */
export async function removeCgroup(folder: string): Promise<void> {
  for (const end = performance.now() + EMPTY_DEADLINE_MS; ; await sleep(10)) {
    try {
      await rmdir(folder).catch(ifGone);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EBUSY') throw error;
      if (performance.now() > end) {
        throw new Error(`cgroup ${folder} still has processes after SIGKILL: ${processesIn(folder).join(', ')}`);
      }
      await killIn(folder);
    }
  }
  // Refused for as long as somebody else's are in them.
  for (const above of oursAbove(path.dirname(folder))) {
    const removed = await rmdir(above).then(
      () => true,
      () => false,
    );
    if (!removed) return;
  }
}

/** The processes in a cgroup; none when it is gone. */
export function processesIn(folder: string): number[] {
  return readWords(path.join(folder, 'cgroup.procs'))
    .map(Number)
    .filter((pid) => pid > 0);
}

async function killIn(folder: string): Promise<void> {
  // Version 2 since Linux 5.14: all at once, those just being made included.
  const all = await writeFile(path.join(folder, 'cgroup.kill'), '1', { flag: 'r+' }).then(
    () => true,
    () => false,
  );
  if (all) return;
  for (const pid of processesIn(folder)) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
}

/** A folder and those above it, up to the one that all of ours lie in. */
function oursAbove(folder: string): string[] {
  const found: string[] = [];
  for (let at = folder; at !== path.dirname(at); at = path.dirname(at)) {
    found.push(at);
    if (path.basename(at) === OUR_FOLDER) return found;
  }
  return [];
}

async function turnOn(folder: string, groups: readonly CgroupFolder[]): Promise<void> {
  const wanted = groups.flatMap(({ controllers }) => controllers);
  const there = readWords(path.join(folder, 'cgroup.subtree_control'));
  const missing = wanted.filter((controller) => !there.includes(controller));
  if (missing.length === 0) return;
  await writeFile(path.join(folder, 'cgroup.subtree_control'), missing.map((name) => `+${name}`).join(' '));
}

function readWords(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split(/\s+/).filter(Boolean);
  } catch {
    return [];
  }
}

/** Of `name value` lines; 0 when there is none. */
function count(text: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
}

function ifGone(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT' && error.code !== 'ESRCH') throw error;
}

function ifThere(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}

/** Of `getxattr`, on each processor architecture Node runs QEMU on. */
const GETXATTR: Partial<Record<NodeJS.Architecture, number>> = { x64: 191, arm64: 8 };

/** systemd marks what it delegates by an extended attribute; Node cannot read one. */
function isDelegated(folder: string): boolean {
  const call = GETXATTR[process.arch];
  if (call === undefined) return false;
  const script = `my $value = "\\0" x 8;
    for my $known ('trusted.delegate', 'user.delegate') {
      my $name = $known;
      my $length = syscall(${call}, $ARGV[0], $name, $value, 8);
      exit 0 if $length > 0 && substr($value, 0, $length) =~ /^1/;
    }
    exit 1;`;
  try {
    execFileSync('perl', ['-e', script, folder], { stdio: 'ignore', timeout: 10_000 });
    return true;
  } catch {
    return false;
  }
}
