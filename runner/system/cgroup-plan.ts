import path from 'node:path';

/**
 * Where the cgroups of replicas go, decided from what the kernel says of this process; nothing is done here.
 *
 *   version 2, delegated    <the unit's own cgroup>/gymbus/<replica>, the runner itself moved into <its own>/runner
 *   version 2, as root      <mount>/gymbus/<runner>/<replica>
 *   version 1, as root      <mount of memory, pids, cpu>/gymbus/<runner>/<replica>
 *
 * A host may have both versions mounted, each with some of the controllers ("hybrid"): the one with memory and pids is taken.
 */
export type CgroupPlan = CgroupPlace | { version: null; reason: string };

export interface CgroupPlace {
  version: 1 | 2;
  groups: readonly CgroupFolder[];
  /** A delegated cgroup, and the leaf in it that the runner moves into: one with controllers for its children holds no process. */
  delegated: { folder: string; leaf: string } | null;
}

export interface CgroupFolder {
  /** Holds a cgroup for each replica. */
  folder: string;
  controllers: readonly Controller[];
}

const CONTROLLERS = ['memory', 'pids', 'cpu'] as const;
export type Controller = (typeof CONTROLLERS)[number];

/** What has to be asked of the host beside the two files; a folder that is not there has no controllers and is not delegated. */
export interface CgroupHost {
  /** `/proc/self/mountinfo` */
  mountinfo: string;
  /** `/proc/self/cgroup` */
  membership: string;
  root: boolean;
  runner: string;
  /** What `cgroup.controllers` of a folder lists. */
  controllersOf: (folder: string) => readonly string[];
  /** Whether a manager such as systemd has left a folder to us (`Delegate=yes`). */
  isDelegated: (folder: string) => boolean;
}

/** Below it lies what is ours. */
export const OUR_FOLDER = 'gymbus';
const LEAF = 'runner';

interface Mount {
  /** The cgroup that is seen at the mount point: `/`, or a container's own. */
  root: string;
  point: string;
  version: 1 | 2;
  /** Of version 1. */
  controllers: readonly string[];
  readOnly: boolean;
}

export function planCgroups(host: CgroupHost): CgroupPlan {
  const mounts = parseMounts(host.mountinfo);
  if (mounts.length === 0) return none('no cgroup file system is mounted');
  const usable = mounts.filter(({ readOnly }) => !readOnly);
  if (usable.length === 0) return none('the cgroup file systems are mounted read-only');
  return planV2(host, usable) ?? planV1(host, usable) ?? none(whyNot(host, usable));
}

const none = (reason: string): CgroupPlan => ({ version: null, reason });

function planV2(host: CgroupHost, mounts: readonly Mount[]): CgroupPlace | null {
  const mount = mounts.find(({ version }) => version === 2);
  if (!mount) return null;
  const own = ownFolder(host, mount);
  const delegated = own === null ? null : delegatedFolder(host, mount, own);
  const base = delegated ?? (host.root ? mount.point : null);
  if (base === null) return null;
  const controllers = ours(host.controllersOf(base));
  if (!controllers.includes('memory') || !controllers.includes('pids')) return null;
  if (delegated === null) {
    return { version: 2, groups: [{ folder: path.join(base, OUR_FOLDER, host.runner), controllers }], delegated };
  }
  const groups = [{ folder: path.join(delegated, OUR_FOLDER), controllers }];
  return { version: 2, groups, delegated: { folder: delegated, leaf: path.join(delegated, LEAF) } };
}

/** The runner's own cgroup when it was left to it, or the one above when it has moved into its leaf already. */
function delegatedFolder(host: CgroupHost, mount: Mount, own: string): string | null {
  const candidates = path.basename(own) === LEAF ? [path.dirname(own), own] : [own];
  return candidates.find((folder) => folder !== mount.point && host.isDelegated(folder)) ?? null;
}

function planV1({ root, runner }: CgroupHost, mounts: readonly Mount[]): CgroupPlace | null {
  if (!root) return null;
  const groups = mounts
    .filter(({ version }) => version === 1)
    .map(({ point, controllers }) => ({
      folder: path.join(point, OUR_FOLDER, runner),
      controllers: ours(controllers),
    }))
    .filter(({ controllers }) => controllers.length > 0);
  const first = CONTROLLERS.flatMap(
    (controller) => groups.find((group) => group.controllers.includes(controller)) ?? [],
  );
  // One that is mounted twice is one; memory is what matters.
  const distinct = [...new Set(first)];
  if (!distinct.some(({ controllers }) => controllers.includes('memory'))) return null;
  return { version: 1, groups: distinct, delegated: null };
}

function whyNot({ root }: CgroupHost, mounts: readonly Mount[]): string {
  if (!root) {
    return 'this runner is not root, and no cgroup of version 2 with memory and pids was delegated to it (systemd: Delegate=yes)';
  }
  const versions = [...new Set(mounts.map(({ version }) => version))].sort().join(' and ');
  return `cgroups of version ${versions} are mounted, without the memory controller`;
}

const ours = (controllers: readonly string[]): Controller[] => CONTROLLERS.filter((name) => controllers.includes(name));

/** Where this process is, as a folder; null when its cgroup is not to be seen below the mount. */
function ownFolder({ membership }: CgroupHost, mount: Mount): string | null {
  const line = membership.split('\n').find((text) => text.startsWith('0::/'));
  if (line === undefined) return null;
  const relative = path.posix.relative(mount.root, line.slice('0::'.length));
  return relative.startsWith('..') ? null : path.join(mount.point, relative);
}

/** Lines that make no sense are passed over. */
function parseMounts(mountinfo: string): Mount[] {
  return mountinfo.split('\n').flatMap((line) => {
    const [mine = '', superblock = ''] = line.split(' - ');
    const [, , , root, point, options] = mine.split(' ');
    const [type, , superOptions] = superblock.split(' ');
    if (root === undefined || point === undefined || options === undefined || superOptions === undefined) return [];
    if (type !== 'cgroup' && type !== 'cgroup2') return [];
    return {
      root: withoutOctals(root),
      point: withoutOctals(point),
      version: type === 'cgroup2' ? (2 as const) : (1 as const),
      controllers: type === 'cgroup2' ? [] : superOptions.split(','),
      readOnly: options.split(',').includes('ro') || superOptions.split(',').includes('ro'),
    };
  });
}

/** The kernel writes blanks and the like as octal numbers. */
function withoutOctals(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
