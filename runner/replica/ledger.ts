import { randomBytes } from 'node:crypto';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import path from 'node:path';
import { readStat } from '../qemu/proc-stat.ts';
import { gib } from './capacity.ts';
import { bootMs, type HostNow } from './host-now.ts';
import { type LedgerEntry, readEntries, remove, type Spoken, writeEntry } from './ledger-file.ts';

/**
 * What the runners of a host have spoken for, whatever their data directories: one budget for all of them.
 *
 *   <run root>/ledger/<pid>-<start>-<random>    one a pool, a record of fixed size, written in place
 *
 * Whoever wants more first writes down the sum with it, then reads what all others have written. Of two that do so at the same moment at
 * least one sees the other, so that together they never take more than there is; it may be that both see one another and both take
 * theirs back, and each tries again after a moment of chance. No lock, and so none that a killed runner could hold. Files of dead
 * owners, known by process number and start time, count for nothing and are removed by whoever meets them.
 *
 * Memory: what is spoken for and not yet touched by its replica is taken off what the kernel calls available, and so much must be left
 * as the floor says. Disk likewise, between those whose storage areas share a device. Processors: each acting replica takes its part of
 * the host's. The host's first acting replica, and its first of all, need the floor alone: a small host still serves.
 *
 * Places to act are shared by need: none is given to a runner while another that waits for one, with jobs in its queue, has fewer, or as
 * few and waits longer. Nobody is interrupted: a runner that starts second gets places as the episodes of the first end, until both have
 * as many, and one that has no jobs leaves all of them to the others.
 */
export class Ledger implements Disposable {
  readonly #folder: string;
  readonly #file: string;
  readonly #fd: number;
  readonly #look: () => HostNow;
  readonly #floors: LedgerFloors;
  #own: LedgerEntry;
  #closed = false;

  /** @param look the host as it is now; called with each decision */
  constructor(folder: string, runner: string, look: () => HostNow, floors: LedgerFloors) {
    mkdirSync(folder, { recursive: true, mode: 0o755 });
    this.#folder = folder;
    this.#look = look;
    this.#floors = floors;
    const start = readStat(`/proc/${process.pid}`)?.[19] ?? '0';
    this.#file = path.join(folder, `${process.pid}-${start}-${randomBytes(4).toString('hex')}`);
    this.#fd = openSync(this.#file, 'wx', 0o644);
    this.#own = {
      ...{ runner, pid: process.pid, at: bootMs(), devices: [...look().devices], waitingSince: null, askedAt: 0 },
      ...{ wantsBytes: 0, acting: 0, milliCpus: 0, memoryBytes: 0, residentBytes: 0, diskBytes: 0 },
      ...{ frozen: 0, hot: 0 },
    };
    writeEntry(this.#fd, this.#own);
  }

  /**
   * Speaks for more: `next` is all that this pool then has.
   * @param act whether it is for one more acting replica: those are shared out
   * @param wants whether jobs wait for it: others are told what memory it takes
   * @returns null when it is granted, else why not; then all is as it was
   */
  ask(next: Spoken, { act = false, wants = act }: { act?: boolean; wants?: boolean } = {}): string | null {
    if (this.#closed) return 'the runner stops';
    const before = this.#own;
    try {
      this.#write({ ...before, ...next });
      const refusal = this.#refusal(before, next, act);
      if (refusal === null) {
        if (act) this.waits(false);
        return null;
      }
      const more = next.memoryBytes - before.memoryBytes;
      const wanted =
        wants && refusal.startsWith('memory') ? { wantsBytes: more, askedAt: bootMs() } : { wantsBytes: 0 };
      this.#write({ ...before, ...wanted });
      return refusal;
    } catch (error) {
      // Of a host that cannot be looked at, or whose other runners cannot be read, nothing is given out; the next look may be better.
      this.#own = before;
      return `room on this host is unknown: ${(error as Error).message}`;
    }
  }

  /** What is spoken for now: less, or what cannot be undone. Never refused. */
  set(spoken: Spoken, facts: Partial<Pick<LedgerEntry, 'residentBytes' | 'frozen' | 'hot'>> = {}): void {
    if (!this.#closed) this.#write({ ...this.#own, ...spoken, ...facts });
  }

  /** Whether jobs wait here for a place to act. To be said again before WAIT_FRESH_MS, else it is void. */
  waits(waiting: boolean): void {
    const { waitingSince, wantsBytes } = this.#own;
    if (this.#closed || (!waiting && waitingSince === null && wantsBytes === 0)) return;
    if (waiting) this.#write({ ...this.#own, waitingSince: waitingSince ?? bootMs(), askedAt: bootMs() });
    else this.#write({ ...this.#own, waitingSince: null, wantsBytes: 0 });
  }

  /** Of all live pools of this host, this one's included. */
  entries(): LedgerEntry[] {
    return readLedger(this.#folder);
  }

  /** What may still be spoken for, by anyone: below nothing where the floor is broken. */
  left(): { memoryBytes: number; diskBytes: number } {
    const now = this.#look();
    const entries = this.entries();
    return {
      memoryBytes: now.memoryBytes - untouched(entries) - this.#floors.memoryBytes,
      diskBytes: now.diskBytes - onDevices(entries, now.devices) - this.#floors.diskBytes,
    };
  }

  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      remove(this.#file);
    } finally {
      closeSync(this.#fd);
    }
  }

  #write(entry: LedgerEntry): void {
    this.#own = { ...entry, at: bootMs() };
    writeEntry(this.#fd, this.#own);
  }

  #refusal(before: LedgerEntry, next: Spoken, act: boolean): string | null {
    const others = readEntries(this.#folder).filter(({ file }) => file !== this.#file);
    const all = [this.#own, ...others.map(({ entry }) => entry)];
    const now = this.#look();
    const first = act
      ? next.acting === 1 && others.every(({ entry }) => entry.acting === 0)
      : before.memoryBytes === 0 && others.every(({ entry }) => entry.memoryBytes === 0);
    if (next.memoryBytes > before.memoryBytes) {
      const more = next.memoryBytes - before.memoryBytes;
      const left = now.memoryBytes - untouched(all);
      const floor = this.#floors.memoryBytes;
      if (left < floor && !(first && left + more >= floor)) return short('memory', left, floor);
      const kept =
        act && before.acting > 0
          ? keptOut(
              others.map(({ entry }) => entry),
              left - floor,
            )
          : null;
      if (kept) return `memory: ${kept.runner} has none to act and waits for ${gib(kept.wantsBytes)} GiB`;
    }
    if (next.diskBytes > before.diskBytes) {
      const left = now.diskBytes - onDevices(all, now.devices);
      if (left < this.#floors.diskBytes && !first) return short('disk', left, this.#floors.diskBytes);
    }
    if (!act) return null;
    const milliCpus = all.reduce((sum, entry) => sum + entry.milliCpus, 0);
    if (milliCpus > now.cpus * 1_000 && !first) {
      return `cpu: 1 more would take ${(milliCpus / 1_000).toFixed(1)} processors, there are ${now.cpus}`;
    }
    const needier = others.find(({ entry }) => isNeedier(entry, before));
    return needier ? `cpu: ${needier.entry.runner} waits for a place and has fewer` : null;
  }
}

export interface LedgerFloors {
  memoryBytes: number;
  diskBytes: number;
}

export type { LedgerEntry, Spoken } from './ledger-file.ts';

/** So often a pool looks at its host, and asks again for what it was refused, at the latest. */
export const LOOK_MS = 2_000;
/**
 * A runner that waits says so at each look: with less than two looks another would take what it waits for just before it asks again. One
 * that was stopped or hangs keeps nobody from acting for longer.
 */
const WAIT_FRESH_MS = 2.5 * LOOK_MS;
/** So long others leave room for a runner that has nothing to act: longer, and it is somebody else who has the memory. */
const ROOM_KEPT_MS = 120_000;

export const ledgerFolder = (runRoot: string): string => path.join(runRoot, 'ledger');

/** Of all live pools of this host; none where nothing ever ran. */
export function readLedger(folder: string): LedgerEntry[] {
  return readEntries(folder).map(({ entry }) => entry);
}

/** Memory that is spoken for and that no replica has touched yet: the kernel still counts it as available. */
export function untouched(entries: readonly LedgerEntry[]): number {
  return entries.reduce((sum, entry) => sum + Math.max(0, entry.memoryBytes - entry.residentBytes), 0);
}

/** What has been written of it is counted twice, for nobody looks: that errs to the side of room. */
function onDevices(entries: readonly LedgerEntry[], devices: readonly number[]): number {
  const sharing = entries.filter((entry) => entry.devices.some((device) => devices.includes(device)));
  return sharing.reduce((sum, entry) => sum + entry.diskBytes, 0);
}

/** Memory for which jobs wait on this host. */
export function wantedMemory(entries: readonly LedgerEntry[]): number {
  return entries.reduce((sum, entry) => sum + (isFresh(entry) ? entry.wantsBytes : 0), 0);
}

/** The runner with nothing to act whose want does not fit into what would be left. */
function keptOut(others: readonly LedgerEntry[], leftBytes: number): LedgerEntry | null {
  const waits = (entry: LedgerEntry): boolean =>
    entry.acting === 0 && isWaiting(entry) && bootMs() - (entry.waitingSince ?? 0) < ROOM_KEPT_MS;
  return others.find((entry) => waits(entry) && entry.wantsBytes > leftBytes) ?? null;
}

const isFresh = ({ askedAt }: LedgerEntry): boolean => bootMs() - askedAt <= WAIT_FRESH_MS;

function isWaiting(entry: LedgerEntry): boolean {
  return entry.waitingSince !== null && isFresh(entry);
}

function isNeedier(other: LedgerEntry, own: LedgerEntry): boolean {
  if (other.waitingSince === null || !isWaiting(other)) return false;
  if (other.acting !== own.acting) return other.acting < own.acting;
  return other.waitingSince < (own.waitingSince ?? Number.POSITIVE_INFINITY);
}

function short(what: 'memory' | 'disk', left: number, floor: number): string {
  return `${what}: 1 more would leave ${gib(left)} GiB, floor is ${gib(floor).replace(/\.0$/, '')} GiB`;
}
