import { chmod, chown, mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runGymbus } from '../support/command.ts';
import { gymbusCommand } from '../support/runner-process.ts';

const NOBODY = 65_534;

/** Root as it is in most containers: without what mounts, or without what opens files of others. */
describe.skipIf(process.getuid?.() !== 0)('root with some of its rights', () => {
  let folder: string;
  beforeAll(async () => {
    // A file system in memory shares no blocks, wherever the tests run.
    folder = await mkdtemp('/dev/shm/gymbus-container-');
    await runGymbus(['--version'], {});
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const gymbus = (lacking: string, args: string[], env: Record<string, string>) =>
    execa('setpriv', [`--bounding-set=-${lacking}`, process.execPath, gymbusCommand, ...args], {
      env: { NATS_URL: '', AWS_ENDPOINT_URL: '', GYMBUS_DATA: folder, ...env },
      ...{ reject: false, stdin: 'ignore', timeout: 120_000 },
    });

  it.each([[['image', 'build']], [['up']], [['demo']]])(
    'is told before anything is built which right it lacks: %j',
    async (args) => {
      const cache = await mkdtemp(path.join(os.tmpdir(), 'gymbus-cache-'));
      try {
        const { exitCode, stderr } = await gymbus('sys_admin', args, { GYMBUS_CACHE: cache });
        expect(exitCode, stderr).toBe(1);
        expect(stderr).toMatch(
          /^gymbus: .*(mounts file systems|right to mount is needed).*CAP_SYS_ADMIN.*--privileged/m,
        );
        expect(stderr).not.toMatch(/as root| {4}at /);
        expect(await readdir(cache)).toEqual([]);
      } finally {
        await rm(cache, { recursive: true });
      }
    },
  );

  const examined = async (check: string, verdict: string, lacking: string, dataDir: string): Promise<string> => {
    const { stdout, stderr } = await gymbus(lacking, ['doctor', '--json'], { GYMBUS_DATA: dataDir });
    const findings = JSON.parse(stdout || '[]') as { what: string; verdict: string; found: string }[];
    const finding = findings.find(({ what }) => what === check);
    expect(finding?.verdict, stderr).toBe(verdict);
    return finding?.found ?? '';
  };
  const wrong = (check: string, lacking: string, dataDir: string): Promise<string> =>
    examined(check, 'wrong', lacking, dataDir);
  const reflink = (lacking: string, dataDir: string): Promise<string> => wrong('reflink', lacking, dataDir);

  it('is told by doctor what it lacks to run QEMU as another user', async () => {
    expect(await wrong('isolation', 'setuid', path.join(folder, 'without-setuid'))).toBe(
      'QEMU cannot be run as another user: root lacks CAP_SETUID or CAP_SETGID here; grant them, or set GYMBUS_QEMU_USER=root',
    );
  });

  it('is told by doctor what it lacks to mount a file system for clones, and that overlays take its place', async () => {
    const found = await examined('reflink', 'note', 'sys_admin', folder);
    expect(found).toMatch(/disks are qcow2 overlays.*has to be mounted: root has no CAP_SYS_ADMIN here/);
    expect(await readdir(folder)).not.toContain('area.xfs');
  });

  it('is told by doctor what it lacks to enter a folder of another user', async () => {
    const theirs = await mkdtemp(path.join(folder, 'theirs-'));
    await chmod(theirs, 0o700);
    await chown(theirs, NOBODY, NOBODY);
    expect(await reflink('dac_override', path.join(theirs, 'data'))).toMatch(
      /^cannot mkdir \/dev\/shm\/.* \(EACCES\): root has no CAP_DAC_OVERRIDE here/,
    );
  });
});
