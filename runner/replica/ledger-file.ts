import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, unlinkSync, writeSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { readStat } from '../qemu/proc-stat.ts';

/** What a pool has spoken for. */
export interface Spoken {
  /** Replicas that act, or are about to. */
  acting: number;
  milliCpus: number;
  memoryBytes: number;
  diskBytes: number;
}

const LedgerEntry = z.object({
  runner: z.string(),
  pid: z.number(),
  /** When it was written, in milliseconds since the host's boot. */
  at: z.number(),
  /** Since when jobs wait for a place to act, by the same clock. */
  waitingSince: z.number().nullable(),
  /** When that, or that memory is wanted, was last said. */
  askedAt: z.number().default(0),
  /** Memory it asked for in vain when it last asked. */
  wantsBytes: z.number(),
  /** Devices its storage area is on. */
  devices: z.array(z.number()),
  acting: z.number(),
  milliCpus: z.number(),
  memoryBytes: z.number(),
  /** What of that its replicas have touched. */
  residentBytes: z.number(),
  diskBytes: z.number(),
  frozen: z.number(),
  hot: z.number(),
});
export type LedgerEntry = z.infer<typeof LedgerEntry>;

/** Fixed, so that a record is one write over the one before; below a page, so that the kernel copies it in one go. */
const RECORD_BYTES = 1_024;
/** A record that is being written is whole within a microsecond. */
const TRIES = 1_000;

/** Writes a record in place: a name that stays is never missed by whoever lists the folder, as one that is renamed may be. */
export function writeEntry(fd: number, entry: LedgerEntry): void {
  const text = JSON.stringify(entry);
  const record = `${digestOf(text)} ${text}`.padEnd(RECORD_BYTES);
  if (record.length > RECORD_BYTES) throw new Error(`a ledger's record has ${record.length} characters: ${text}`);
  writeSync(fd, record, 0, 'utf8');
}

/** All records of live owners. Those of dead ones are removed. */
export function readEntries(folder: string): { file: string; entry: LedgerEntry }[] {
  const entries: { file: string; entry: LedgerEntry }[] = [];
  for (const name of names(folder)) {
    const file = path.join(folder, name);
    const [pid, start] = name.split('-');
    if (!isAlive(pid, start)) {
      remove(file);
      continue;
    }
    const entry = readEntry(file);
    if (entry) entries.push({ file, entry });
  }
  return entries;
}

/**
 * A record that was read while it was written over is read again.
 * @returns null when the file is gone, or new and empty: nothing is spoken for in it yet
 * @throws when it is never whole: nothing may be given out then
 */
function readEntry(file: string): LedgerEntry | null {
  for (let tries = 0; tries < TRIES; tries += 1) {
    let record: string;
    try {
      record = readFileSync(file, 'utf8').trimEnd();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
    if (record === '') return null;
    const at = record.indexOf(' ');
    const text = record.slice(at + 1);
    if (record.slice(0, at) === digestOf(text)) return LedgerEntry.parse(JSON.parse(text));
  }
  throw new Error(`${file} is no record of a ledger: remove it when no gymbus runs on this host`);
}

function names(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Whether the process that made a file is there: its number alone may by now be another's. */
function isAlive(pid: string | undefined, start: string | undefined): boolean {
  const stat = readStat(`/proc/${pid}`);
  return stat !== null && stat[0] !== 'Z' && stat[19] === start;
}

export function remove(file: string): void {
  try {
    unlinkSync(file);
  } catch (error) {
    // Somebody else met it, too.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

function digestOf(text: string): string {
  return createHash('sha1').update(text).digest('hex').slice(0, 8);
}
