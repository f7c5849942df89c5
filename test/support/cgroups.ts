import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { CgroupTree, lookForCgroups } from '../../runner/system/cgroup.ts';

/** Every cgroup of a runner's replicas on this host, on record or not. */
export async function cgroupsOf(runnerId: string): Promise<string[]> {
  const plan = lookForCgroups(runnerId);
  if (plan.version === null) return [];
  const found: string[] = [];
  // What would hold a replica without a name is what holds them all.
  for (const parent of new CgroupTree(plan, 1).foldersOf('')) {
    const entries = await readdir(parent, { withFileTypes: true }).catch(() => []);
    found.push(...entries.filter((entry) => entry.isDirectory()).map(({ name }) => path.join(parent, name)));
  }
  return found;
}
