import { rm } from 'node:fs/promises';
import { killFound, qemuProcesses } from './host-processes.ts';
import { ownedBy, releaseOwnership } from './ownership.ts';

export interface Reaped {
  processes: number;
  replicas: number;
  /** What could not be removed, and why: its record stays, for the next start. */
  resisted: string[];
}

/**
 * Removes everything an earlier process under this runner id left behind: QEMUs, disks, sockets, identities. Nothing is adopted.
 * Things of other runners are not touched: only what is on record for this one, and processes with a recorded uuid.
 * The caller makes sure that no process under this runner id is alive.
 */
export async function reapOwned(area: string, runner: string): Promise<Reaped> {
  const { records, bare } = await ownedBy(area, runner);
  if (records.length === 0 && bare.length === 0) return { processes: 0, replicas: 0, resisted: [] };
  const byUuid = new Map(records.map((record) => [record.uuid, record]));
  let processes = 0;
  for (const found of await qemuProcesses()) {
    const record = byUuid.get(found.uuid);
    if (!record || found.startTicks < record.ticks) continue;
    await killFound(found);
    processes += 1;
  }
  const resisted: string[] = [];
  for (const record of records) {
    await releaseOwnership(area, record).catch((error: Error) => resisted.push(`${record.id}: ${error.message}`));
  }
  for (const folder of bare) await rm(folder, { recursive: true, force: true });
  return { processes, replicas: records.length + bare.length - resisted.length, resisted };
}
