import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import { readKernelFile, readStat } from '../qemu/proc-stat.ts';
import { lockFile } from '../system/lock.ts';
import { KERNEL, type KernelFolders } from './host-now.ts';

/**
 * Kernel samepage merging (KSM) for the runners of a host: on while any of them wants it, and then as it was before.
 *
 *   <run root>/ksm/former.json       what the host had set, written down before it is changed
 *   <run root>/ksm/<pid>-<start>     one a runner that wants it
 *   <run root>/ksm.lock              held while either changes
 *
 * Whoever leaves last restores it. After a runner that was killed, the next one to start does, whether it wants merging or not.
 */
export interface Merging extends AsyncDisposable {
  /** Whether machines are to be started with their memory up for merging. */
  readonly on: boolean;
}

/** How eagerly the kernel looks: 80 MB a second, some tenths of a processor. Its own default would take a quarter of an hour for 15 GiB. */
const WANTED = { run: '1', pages_to_scan: '1000', sleep_millisecs: '50' } as const;
type Setting = keyof typeof WANTED;
const SETTINGS = Object.keys(WANTED) as Setting[];
const Former = z.object({ run: z.string(), pages_to_scan: z.string(), sleep_millisecs: z.string() });
const LOCK_DEADLINE_MS = 10_000;

/**
 * Restores what a killed runner left, and turns merging on where it is wanted. A kernel without it, or one that will not let this user,
 * is told of in the log, once, and is no error.
 */
export async function openMerging(
  runRoot: string,
  wanted: boolean,
  log: Logger,
  kernel: Pick<KernelFolders, 'sys'> = KERNEL,
): Promise<Merging> {
  const ksm = new Ksm(path.join(runRoot, 'ksm'), path.join(kernel.sys, 'kernel/mm/ksm'), log);
  await ksm.locked(() => ksm.begin(wanted));
  return ksm;
}

/** Bytes that merging saves on this host at this moment; null where the kernel has none. */
export function mergedBytes({ sys }: Pick<KernelFolders, 'sys'> = KERNEL): number | null {
  const pages = readKernelFile(path.join(sys, 'kernel/mm/ksm/pages_sharing'));
  return pages === null ? null : Number(pages) * PAGE_BYTES;
}

const PAGE_BYTES = 4_096;

class Ksm implements Merging {
  readonly #folder: string;
  readonly #sys: string;
  readonly #log: Logger;
  readonly #holder: string;
  #on = false;

  constructor(folder: string, sys: string, log: Logger) {
    this.#folder = folder;
    this.#sys = sys;
    this.#log = log;
    this.#holder = `${process.pid}-${readStat(`/proc/${process.pid}`)?.[19]}`;
  }

  get on(): boolean {
    return this.#on;
  }

  async locked(work: () => Promise<void>): Promise<void> {
    await using _lock = await lockFile(`${this.#folder}.lock`, { waitMs: LOCK_DEADLINE_MS });
    await work();
  }

  async begin(wanted: boolean): Promise<void> {
    if ((await this.#holders()).length === 0) await this.#restore();
    if (!wanted) return;
    if (readKernelFile(this.#file('run')) === null) {
      this.#log.warn('GYMBUS_KSM=on, but this kernel cannot merge memory (CONFIG_KSM): replicas are not merged');
      return;
    }
    await mkdir(this.#folder, { recursive: true });
    await this.#remember();
    await writeFile(path.join(this.#folder, this.#holder), '');
    try {
      await this.#apply(WANTED);
      this.#on = true;
    } catch (error) {
      this.#log.warn({ err: error }, 'GYMBUS_KSM=on, but it cannot be turned on here: replicas are not merged');
      await this.#end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#on) return;
    this.#on = false;
    await this.locked(() => this.#end());
  }

  async #end(): Promise<void> {
    await rm(path.join(this.#folder, this.#holder), { force: true });
    if ((await this.#holders()).length === 0) await this.#restore();
  }

  /** Runners that want merging and are alive; of dead ones the files are removed. */
  async #holders(): Promise<string[]> {
    const alive: string[] = [];
    for (const name of await readdir(this.#folder).catch((): string[] => [])) {
      const [, pid, start] = /^(\d+)-(\d+)$/.exec(name) ?? [];
      if (!pid) continue;
      const stat = readStat(`/proc/${pid}`);
      if (stat !== null && stat[0] !== 'Z' && stat[19] === start) alive.push(name);
      else await rm(path.join(this.#folder, name), { force: true });
    }
    return alive;
  }

  async #remember(): Promise<void> {
    const file = path.join(this.#folder, 'former.json');
    if (await readFile(file).catch(() => null)) return;
    const former = Object.fromEntries(SETTINGS.map((name) => [name, readKernelFile(this.#file(name))?.trim()]));
    await writeFile(`${file}.new`, JSON.stringify(Former.parse(former)));
    await rename(`${file}.new`, file);
  }

  async #restore(): Promise<void> {
    const file = path.join(this.#folder, 'former.json');
    const text = await readFile(file, 'utf8').catch(() => null);
    if (text === null) return;
    await this.#apply(Former.parse(JSON.parse(text))).catch((error: Error) => {
      this.#log.warn({ err: error, former: text }, 'what was set for merging memory before cannot be set again');
    });
    await rm(file, { force: true });
  }

  async #apply(values: Record<Setting, string>): Promise<void> {
    for (const name of SETTINGS) await writeFile(this.#file(name), values[name]);
  }

  #file(name: Setting): string {
    return path.join(this.#sys, name);
  }
}
