import { describe, expect, it } from 'vitest';
import { type CgroupHost, planCgroups } from '../../runner/system/cgroup-plan.ts';

const mount = (root: string, point: string, type: string, superOptions: string, options = 'rw,relatime'): string =>
  `31 23 0:28 ${root} ${point} ${options} shared:9 - ${type} ${type} ${superOptions}`;
const v1 = (name: string, options = name): string => mount('/', `/sys/fs/cgroup/${name}`, 'cgroup', `rw,${options}`);
const V2 = mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw,nsdelegate');

/** A host with these mounts, on which nothing is delegated and version 2 has no controllers. */
function host(mounts: string[], more: Partial<CgroupHost> = {}): CgroupHost {
  return {
    ...{ mountinfo: ['25 1 8:1 / / rw - ext4 /dev/vda rw', ...mounts, ''].join('\n'), membership: '0::/\n' },
    ...{ root: true, runner: 'a', controllersOf: () => [], isDelegated: () => false },
    ...more,
  };
}
const ALL = ['cpuset', 'cpu', 'io', 'memory', 'hugetlb', 'pids'];
const UNIT = '/system.slice/gymbus-runner.service';

describe('version 2', () => {
  it('is used at its root by a runner that is root', () => {
    expect(planCgroups(host([V2], { controllersOf: () => ALL }))).toEqual({
      version: 2,
      groups: [{ folder: '/sys/fs/cgroup/gymbus/a', controllers: ['memory', 'pids', 'cpu'] }],
      delegated: null,
    });
  });

  it.each([true, false])(
    'is used where it was delegated, root or not (%s), and the runner moves into a leaf',
    (root) => {
      const folder = `/sys/fs/cgroup${UNIT}`;
      const asked: string[] = [];
      const isDelegated = (at: string): boolean => asked.push(at) > 0 && at === folder;
      const delegated = { membership: `0::${UNIT}\n`, root, isDelegated, controllersOf: () => ['memory', 'pids'] };
      const plan = {
        version: 2,
        groups: [{ folder: `${folder}/gymbus`, controllers: ['memory', 'pids'] }],
        delegated: { folder, leaf: `${folder}/runner` },
      };
      expect(planCgroups(host([V2], delegated))).toEqual(plan);
      expect(asked).toEqual([folder]);
      expect(planCgroups(host([V2], { ...delegated, membership: `0::${UNIT}/runner\n` })), 'again').toEqual(plan);
    },
  );

  it('is found below a container’s own root, and its root is never taken for delegated', () => {
    const asked: string[] = [];
    const isDelegated = (at: string): boolean => asked.push(at) > 0;
    const own = mount('/docker/1f', '/sys/fs/cgroup', 'cgroup2', 'rw');
    const inside = { membership: '0::/docker/1f/x\n', isDelegated, controllersOf: () => ALL };
    expect(planCgroups(host([own], inside))).toMatchObject({ delegated: { folder: '/sys/fs/cgroup/x' } });
    expect(planCgroups(host([own], { ...inside, membership: '0::/docker/1f\n' }))).toMatchObject({ delegated: null });
    expect(planCgroups(host([own], { ...inside, membership: '0::/elsewhere\n' }))).toMatchObject({ delegated: null });
    expect(asked).toEqual(['/sys/fs/cgroup/x']);
  });

  it('does not help a runner that is not root and to which none was delegated', () => {
    expect(planCgroups(host([V2], { root: false, controllersOf: () => ALL }))).toEqual({
      version: null,
      reason: expect.stringMatching(/not root.*Delegate=yes/),
    });
  });
});

describe('version 1', () => {
  const three = [v1('memory'), v1('pids'), v1('cpu', 'cpu,cpuacct')];

  it('is used at the roots of memory, pids and cpu, whatever else is mounted', () => {
    expect(planCgroups(host([v1('cpuset'), ...three, v1('systemd', 'name=systemd')]))).toEqual({
      version: 1,
      groups: [
        { folder: '/sys/fs/cgroup/memory/gymbus/a', controllers: ['memory'] },
        { folder: '/sys/fs/cgroup/pids/gymbus/a', controllers: ['pids'] },
        { folder: '/sys/fs/cgroup/cpu/gymbus/a', controllers: ['cpu'] },
      ],
      delegated: null,
    });
  });

  it('is used with what there is of it, but not without memory', () => {
    const both = host([v1('memory,pids')]);
    expect(planCgroups(both)).toMatchObject({ groups: [{ controllers: ['memory', 'pids'] }] });
    expect(planCgroups(host([v1('memory'), v1('memory')]))).toMatchObject({ groups: [{ controllers: ['memory'] }] });
    expect(planCgroups(host([v1('pids'), v1('cpu')]))).toEqual({
      version: null,
      reason: 'cgroups of version 1 are mounted, without the memory controller',
    });
  });

  it('is not for a runner that is not root', () => {
    expect(planCgroups(host(three, { root: false }))).toMatchObject({ version: null });
  });
});

describe('both', () => {
  const unified = mount('/', '/sys/fs/cgroup/unified', 'cgroup2', 'rw');
  it.each<[string, string[], unknown]>([
    ['1, where version 2 has no controllers', ['hugetlb'], { version: 1 }],
    ['1, where version 2 lacks one that matters', ['memory', 'cpu'], { version: 1 }],
    [
      '2, where it has memory and pids',
      ['memory', 'pids'],
      { version: 2, groups: [{ controllers: ['memory', 'pids'] }] },
    ],
  ])('version %s', (_, controllers, plan) => {
    expect(planCgroups(host([v1('memory'), unified], { controllersOf: () => controllers }))).toMatchObject(
      plan as object,
    );
  });
});

describe('none', () => {
  it.each<[string, string[], string]>([
    ['is mounted', [], 'no cgroup file system is mounted'],
    [
      'may be written to',
      [mount('/', '/sys/fs/cgroup', 'cgroup2', 'rw', 'ro,nosuid')],
      'the cgroup file systems are mounted read-only',
    ],
    [
      'can be read',
      ['31 23', 'cgroup2 - ', '- cgroup2 cgroup2 rw', 'x - cgroup cgroup memory'],
      'no cgroup file system is mounted',
    ],
    ['has memory', [V2], 'cgroups of version 2 are mounted, without the memory controller'],
  ])('%s', (_, mounts, reason) => {
    expect(planCgroups(host(mounts))).toEqual({ version: null, reason });
  });

  it('is found in what is no account of cgroups at all', () => {
    for (const text of ['', '\0\n\n', 'a b c d e f g - cgroup', '0::/\n0::']) {
      expect(planCgroups(host([], { mountinfo: text, membership: text })).version).toBeNull();
    }
  });
});

it('reads mount points with blanks in them', () => {
  const odd = mount('/', '/sys/fs/my\\040cgroup', 'cgroup2', 'rw');
  expect(planCgroups(host([odd], { controllersOf: (at) => (at === '/sys/fs/my cgroup' ? ALL : []) }))).toMatchObject({
    groups: [{ folder: '/sys/fs/my cgroup/gymbus/a' }],
  });
});
