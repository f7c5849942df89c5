import { link, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { removeRunFolder } from '../qemu/run-folder.ts';
import { asStorageFull } from '../storage/errors.ts';
import { removeCgroup } from '../system/cgroup.ts';

/**
 * Who owns what on this host. A record is written before the thing is made and removed after the thing is gone,
 * so that whoever starts under the same runner id finds everything its forerunner left behind.
 *
 *   <area>/runners/<runner>/replicas/<id>/owner.json    the record, beside the replica's disk
 *   <area>/identities/<machine id>                      taken by one replica on this host, whichever runner's
 */
export const OwnerRecord = z.looseObject({
  schema: z.literal('gymbus.owner.v1'),
  runner: z.string(),
  id: z.string(),
  /** QEMU's `-uuid`: the process is recognised by it, never by a pid, which the kernel gives out again. */
  uuid: z.string(),
  machine_id: z.string(),
  run_folder: z.string(),
  /** Made after this was written. */
  cgroups: z.array(z.string()).default([]),
  /** Clock ticks since the host's boot when this was written; the process started later. */
  ticks: z.number(),
});
export type OwnerRecord = z.infer<typeof OwnerRecord>;

export const replicasFolder = (area: string, runner: string): string => path.join(area, 'runners', runner, 'replicas');
const identityFile = (area: string, machineId: string): string => path.join(area, 'identities', machineId);

/** A machine id that another replica of this host has already. */
export class IdentityTaken extends Error {
  override readonly name = 'IdentityTaken';
}

/**
 * Writes the record and takes the machine id. Where that fails, nothing of it stays.
 * @returns the replica's folder @throws IdentityTaken, StorageFull
 */
export async function takeOwnership(area: string, record: OwnerRecord): Promise<string> {
  const folder = path.join(replicasFolder(area, record.runner), record.id);
  await mkdir(path.dirname(folder), { recursive: true });
  try {
    // Not recursive: that says ENOENT of a disk that is full.
    await mkdir(folder);
  } catch (error) {
    throw asStorageFull(error, folder);
  }
  try {
    // Renamed into place: one cut short by a crash does not count.
    const draft = path.join(folder, 'owner.json.new');
    await writeFile(draft, JSON.stringify(record));
    await rename(draft, path.join(folder, 'owner.json'));
    await takeIdentity(area, folder, record);
    return folder;
  } catch (error) {
    // For instance for lack of room, and then again with each replica that is tried.
    await releaseOwnership(area, record).catch(() => undefined);
    throw asStorageFull(error, folder);
  }
}

/** Linked into place, whole: one without its holder's name would be nobody's to remove. */
async function takeIdentity(area: string, folder: string, record: OwnerRecord): Promise<void> {
  const identity = identityFile(area, record.machine_id);
  const draft = path.join(folder, 'identity');
  await mkdir(path.dirname(identity), { recursive: true });
  await writeFile(draft, record.id);
  try {
    await link(draft, identity);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const holder = (await identityHolder(area, record.machine_id)) ?? 'another replica';
    throw new IdentityTaken(`machine id ${record.machine_id} belongs to ${holder}`, { cause: error });
  } finally {
    await rm(draft, { force: true });
  }
}

/** Removes what a replica had: what still runs in its cgroups, then these, then its files, its record last. Idempotent. */
export async function releaseOwnership(area: string, record: OwnerRecord): Promise<void> {
  const folder = path.join(replicasFolder(area, record.runner), record.id);
  for (const cgroup of record.cgroups) await removeCgroup(cgroup);
  for (const disk of ['disk.raw', 'disk.qcow2']) await rm(path.join(folder, disk), { force: true });
  await removeRunFolder(record.run_folder);
  const holder = await identityHolder(area, record.machine_id);
  if (holder === record.id) await rm(identityFile(area, record.machine_id), { force: true });
  await rm(folder, { recursive: true, force: true });
}

/** Which replica of this host has a machine id; null when none. */
export async function identityHolder(area: string, machineId: string): Promise<string | null> {
  return readFile(identityFile(area, machineId), 'utf8').catch(() => null);
}

/** Everything on record for a runner, and folders without a record, in which nothing was made yet. */
export async function ownedBy(area: string, runner: string): Promise<{ records: OwnerRecord[]; bare: string[] }> {
  const folder = replicasFolder(area, runner);
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const records: OwnerRecord[] = [];
  const bare: string[] = [];
  for (const name of names) {
    const text = await readFile(path.join(folder, name, 'owner.json'), 'utf8').catch(() => null);
    const record = parseRecord(text);
    if (record?.runner === runner && record.id === name) records.push(record);
    else bare.push(path.join(folder, name));
  }
  return { records, bare };
}

/** Null for one cut short by a power failure, after which no process of it runs either. */
function parseRecord(text: string | null): OwnerRecord | null {
  try {
    return OwnerRecord.parse(JSON.parse(text ?? ''));
  } catch {
    return null;
  }
}
