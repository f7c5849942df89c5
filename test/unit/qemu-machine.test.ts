import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HELPER_PORT } from '../../runner/qemu/arguments.ts';
import { Launcher } from '../../runner/qemu/launcher.ts';
import { Machine, type MachineSettings } from '../../runner/qemu/machine.ts';
import { giveRunFolder, makeMachineFiles } from '../../runner/qemu/machine-files.ts';
import { OWN_RIGHTS } from '../../runner/qemu/rights.ts';

const never = new AbortController().signal;
let folder: string;
let settings: MachineSettings;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-machine-'));
  settings = {
    name: 'test',
    qemuPath: '/bin/false',
    launcher: new Launcher(),
    hardware: {
      accelerator: 'tcg',
      vcpus: 1,
      memoryMib: 64,
      screen: { width: 640, height: 480 },
      vmGenerationId: true,
    },
    identity: { uuid: '11111111-1111-4111-8111-111111111111', generation: '22222222-2222-4222-8222-222222222222' },
    memoryPath: path.join(folder, 'ram'),
    diskPath: path.join(folder, 'disk'),
    runFolder: path.join(folder, 'run'),
    start: { kind: 'clone', overlayOf: null },
    statePath: null,
    confinement: { ...OWN_RIGHTS, verdict: async () => null },
  };
  for (const file of [settings.memoryPath, settings.diskPath]) await writeFile(file, '');
});
afterEach(async () => {
  await settings.launcher[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const descriptors = async (): Promise<number> => (await readdir('/proc/self/fd')).length;

describe('a machine that does not start', () => {
  it.each([
    ['/bin/false', 'qemu did not start: qemu exited with code 1'],
    ['/no/such/qemu', 'qemu did not start: qemu exited with code 2: launcher: cannot start /no/such/qemu'],
  ])('%s: says why and leaves nothing behind', async (qemuPath, message) => {
    const before = await descriptors();
    await expect(Machine.start({ ...settings, qemuPath }, never)).rejects.toThrow(message);
    expect(existsSync(settings.runFolder)).toBe(false);
    await settings.launcher[Symbol.asyncDispose]();
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });

  it('is not waited for when it is no longer wanted', async () => {
    const qemuPath = path.join(folder, 'qemu');
    const pidFile = path.join(folder, 'pid');
    await writeFile(qemuPath, `#!/bin/sh\necho $$ > ${pidFile}.new; mv ${pidFile}.new ${pidFile}; exec sleep 600\n`);
    await chmod(qemuPath, 0o755);
    const unwanted = new AbortController();
    const starting = expect(Machine.start({ ...settings, qemuPath }, unwanted.signal)).rejects.toThrow(
      'qemu did not start: not wanted any more',
    );
    await expect.poll(() => existsSync(pidFile), { timeout: 10_000 }).toBe(true);
    const pid = (await readFile(pidFile, 'utf8')).trim();
    unwanted.abort(new Error('not wanted any more'));
    await starting;
    expect(existsSync(`/proc/${pid}`)).toBe(false);
    expect(existsSync(settings.runFolder)).toBe(false);
  });

  it('leaves the run folder of another machine as it is', async () => {
    await mkdir(settings.runFolder);
    await writeFile(path.join(settings.runFolder, 'screen.ppm'), 'of another');
    await expect(Machine.start(settings, never)).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readdir(settings.runFolder)).toEqual(['screen.ppm']);
  });

  it('leaves nothing behind when not even its launcher can be started', async () => {
    const { PATH } = process.env;
    const before = await descriptors();
    process.env.PATH = '/nonexistent';
    try {
      await expect(Machine.start(settings, never)).rejects.toThrow('cannot start perl, which starts qemu');
    } finally {
      process.env.PATH = PATH;
    }
    expect(existsSync(settings.runFolder)).toBe(false);
    await settings.launcher[Symbol.asyncDispose]();
    await expect.poll(descriptors).toBeLessThanOrEqual(before);
  });
});

describe('a run folder', () => {
  it('is nobody else’s to write in until the machine has its channels, and then its user’s', async () => {
    const user = { name: 'nobody', uid: 65_534, gid: 65_534, groups: [] };
    const { files } = await makeMachineFiles(settings, user);
    const seen = async () => {
      const { uid, mode } = await stat(settings.runFolder);
      return [uid, (mode & 0o777).toString(8)];
    };
    expect(await seen()).toEqual([process.getuid?.(), '711']);
    expect(files.map(({ path: file, access }) => [path.basename(file), access])).toEqual([
      ['ram', 'r'],
      ['disk', 'r+'],
      ['disk', 'r'],
    ]);
    if (process.getuid?.() !== 0) return;
    await giveRunFolder(settings.runFolder, user);
    expect(await seen()).toEqual([user.uid, '700']);
  });
});

describe('a machine that is lost', () => {
  /** Agrees on QMP, and does what it is told to by the name of a command: stands in for QEMU where no guest is needed. */
  const STAND_IN = `#!/usr/bin/perl
open(my $qmp, '+<&=', 4) or die;
open(my $helper, '+<&=', 5) or die;
my %does = (
  cont => sub { syswrite($helper, '{"id": null, "fault": "x_server", "message": "the X server ended"}' . "\\n") },
  stop => sub { syswrite($qmp, '{"event": "GUEST_PANICKED", "data": {}}' . "\\n") },
  'system_reset' => sub {
    syswrite($qmp, '{"event": "VSERPORT_CHANGE", "data": {"id": "${HELPER_PORT}", "open": false}}' . "\\n");
  },
  system_powerdown => sub {
    syswrite($qmp, '{"event": "SHUTDOWN", "data": {"guest": false, "reason": {"toString": 0, "valueOf": 0}}}' . "\\n");
  },
  quit => sub { exit 3 },
);
syswrite($qmp, '{"QMP": {"version": {}, "capabilities": []}}' . "\\n");
while (my $line = <$qmp>) {
  my ($id) = $line =~ /"id":(\\d+)/;
  syswrite($qmp, qq({"return": {}, "id": $id}\\n)) if defined $id;
  my ($command) = $line =~ /"execute":"(\\w+)"/;
  $does{$command}->() if exists $does{$command};
}
`;

  it.each([
    ['the X server ended', 'cont', true],
    ['the helper in the guest died', 'system_reset', true],
    ['guest kernel panicked (GUEST_PANICKED)', 'stop', false],
    ['qemu was told to stop (something else)', 'system_powerdown', false],
    ['qemu exited with code 3', 'quit', false],
  ])('%s: tells whether that was found in its guest', async (cause, command, found) => {
    const qemuPath = path.join(folder, 'qemu');
    await writeFile(qemuPath, STAND_IN, { mode: 0o755 });
    const machine = await Machine.start({ ...settings, qemuPath }, never);
    try {
      const lost = once(machine.lost, 'abort', { signal: AbortSignal.timeout(10_000) });
      await machine.qmp.execute(command).catch(() => undefined);
      await lost;
      expect(machine.lost.reason).toMatchObject({ name: 'ReplicaLost', message: cause, byHost: false, found });
    } finally {
      await machine.kill();
    }
  });
});
