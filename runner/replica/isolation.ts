import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import type { Hardware } from '../qemu/arguments.ts';
import type { Confinement, Verdict } from '../qemu/machine.ts';
import { chooseMachineUser, forAccelerator } from '../qemu/machine-user.ts';
import type { MachineUser } from '../qemu/rights.ts';
import { CgroupTree, lookForCgroups, oomDeath } from '../system/cgroup.ts';

/** What keeps the machines of one runner from its host, from the runner and from each other. */
export interface Isolation {
  /** Null: the runner's own. */
  readonly user: MachineUser | null;
  /** Null where there are none to be had: machines are bounded by resource limits alone then. */
  readonly cgroups: CgroupTree | null;
  /** One line each. */
  readonly description: { user: string; limits: string };
}

export interface IsolationSettings {
  qemuUser: string | undefined;
  runnerId: string;
}

const MIB = 2 ** 20;
/** What QEMU itself takes beside its guest's memory: heap, libraries, page tables, pictures, and the page cache of its disk at its least. */
const QEMU_MIB = 192;
/** The translation buffer, full. */
const TRANSLATION_MIB = 128;
/** A machine has 3 or 4 threads, and up to 64 more while it reads and writes its disk. */
const PIDS = 128;
/** Stacks of all threads (8 MiB each) and arenas are counted in full by a resource limit, used or not. */
const UNUSED_MIB = 1_024;

/** Most memory of a machine, in bytes. */
export function memoryLimit({ accelerator, memoryMib }: Hardware): number {
  return (memoryMib + QEMU_MIB + (accelerator === 'tcg' ? TRANSLATION_MIB : 0)) * MIB;
}

/**
 * Finds or makes QEMU's user, and the place for cgroups.
 * @throws MachineUserUnavailable
 */
export async function openIsolation(settings: IsolationSettings): Promise<Isolation> {
  const { user, description } = await chooseMachineUser(settings.qemuUser, { make: true });
  const { cgroups, limits } = await openCgroups(settings.runnerId);
  return { user, cgroups, description: { user: description, limits } };
}

/** The same questions for `gymbus doctor`: nothing is made, nothing moved. @throws MachineUserUnavailable */
export async function examineIsolation(
  settings: IsolationSettings,
): Promise<Isolation['description'] & { bounded: boolean }> {
  const { description: user } = await chooseMachineUser(settings.qemuUser, { make: false });
  const plan = lookForCgroups(settings.runnerId);
  if (plan.version === null) return { user, limits: byRlimits(plan.reason), bounded: false };
  return { user, limits: byCgroups(new CgroupTree(plan, availableParallelism()).description), bounded: true };
}

const byCgroups = (description: string): string => `limits by ${description}`;
const byRlimits = (reason: string): string => `limits by rlimits alone, on memory and open files: ${reason}`;

async function openCgroups(runnerId: string): Promise<{ cgroups: CgroupTree | null; limits: string }> {
  const plan = lookForCgroups(runnerId);
  let reason: string;
  if (plan.version === null) reason = plan.reason;
  else {
    const cgroups = new CgroupTree(plan, availableParallelism());
    try {
      await cgroups.open();
      return { cgroups, limits: byCgroups(cgroups.description) };
    } catch (error) {
      reason = `${cgroups.description} cannot be used: ${(error as Error).message}`;
    }
  }
  return { cgroups: null, limits: byRlimits(reason) };
}

/** Said once, at the start: what a machine may not do is as much an operator's concern as what it may. */
export function sayIsolation({ description, cgroups }: Isolation, log: Logger): void {
  log.info(description.user);
  if (cgroups) log.info(description.limits);
  else log.warn(description.limits);
}

/** The cgroups that `confineReplica` makes, to be put on record before. */
export function cgroupsOf({ cgroups }: Isolation, id: string): string[] {
  return cgroups?.foldersOf(id) ?? [];
}

/** Bounds a replica's machine, which is about to start. @throws what the kernel refuses */
export async function confineReplica(
  { user, cgroups }: Isolation,
  id: string,
  hardware: Hardware,
): Promise<Confinement> {
  const memoryBytes = memoryLimit(hardware);
  const joins = (await cgroups?.make(id, { memoryBytes, pids: PIDS })) ?? [];
  const folders = cgroups?.foldersOf(id) ?? [];
  return {
    user: await forAccelerator(user, hardware.accelerator),
    ...{ joins, dataBytes: cgroups ? null : memoryBytes + UNUSED_MIB * MIB },
    verdict: () => verdictOn(folders),
  };
}

/**
 * A template's machine runs no job. It has no cgroup of its own: the pages of its memory file are its runner's then, and clones find
 * them there, instead of the first one being charged for them.
 */
export async function confineTemplate({ user }: Isolation, { accelerator }: Hardware): Promise<Confinement> {
  return { user: await forAccelerator(user, accelerator), joins: [], dataBytes: null, verdict: async () => null };
}

async function verdictOn(folders: readonly string[]): Promise<Verdict | null> {
  const death = await oomDeath(folders);
  if (!death) return null;
  const { memoryLimitBytes: limit } = death;
  if (limit === null) return { cause: 'qemu was killed: the host had no memory left', byHost: true };
  return { cause: `qemu was killed: its memory limit of ${Math.round(limit / MIB)} MiB was reached`, byHost: false };
}
