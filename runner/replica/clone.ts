import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { Machine } from '../qemu/machine.ts';
import { overlay, reflink } from '../storage/clone.ts';
import type { CpuGroup } from './cpu-groups.ts';
import type { Engine } from './engine.ts';
import { confineReplica } from './isolation.ts';
import { checkTemplate, type Template } from './template.ts';

/** Makes disk and cgroups of a clone and starts its QEMU, empty. @param uuid the process is recognised by it, and its cgroups */
export async function startClone(
  engine: Engine,
  template: Template,
  uuid: string,
  folder: string,
  runFolder: string,
  group: CpuGroup | null,
  signal: AbortSignal,
): Promise<Machine> {
  const overlays = engine.area.cloning === 'overlay';
  const diskPath = path.join(folder, overlays ? 'disk.qcow2' : 'disk.raw');
  await checkTemplate(template);
  const [confinement] = await both(
    confineReplica(engine.isolation, uuid, template.hardware),
    (overlays ? overlay : reflink)(template.diskPath, diskPath),
  );
  const machine = await Machine.start(
    {
      name: `gymbus-${uuid.slice(0, 8)}`,
      qemuPath: engine.qemu.path,
      launcher: engine.launcher,
      hardware: template.hardware,
      identity: { uuid, generation: randomUUID() },
      memoryPath: template.memoryPath,
      diskPath,
      runFolder,
      start: { kind: 'clone', overlayOf: overlays ? template.diskPath : null },
      statePath: template.statePath,
      confinement: { ...confinement, mergeMemory: engine.mergeMemory ?? false, cpus: group?.cpus ?? null },
    },
    signal,
  );
  try {
    // Another runner may have made the template anew while its files were opened one by one: memory and state must be of one making.
    await checkTemplate(template);
  } catch (error) {
    await machine.kill((error as Error).message);
    throw error;
  }
  return machine;
}

/** Where one fails the other is waited for: it makes what is cleared up afterwards. */
async function both<A, B>(one: Promise<A>, other: Promise<B>): Promise<[A, B]> {
  const [first, second] = await Promise.allSettled([one, other]);
  if (first.status === 'rejected') throw first.reason;
  if (second.status === 'rejected') throw second.reason;
  return [first.value, second.value];
}
