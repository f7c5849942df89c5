import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../runner/cli/error.ts';
import { readConfig } from '../../runner/host/config.ts';
import { DEFAULT_USER, USERADD } from '../../runner/qemu/machine-user.ts';

const file = path.resolve(import.meta.dirname, '../../infra/systemd/gymbus-runner.service');

/** What the unit promises systemd must be what the runner does; nothing else holds the two together. */
describe('the systemd unit', () => {
  let settings: Map<string, string>;
  beforeAll(async () => {
    const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => /^[A-Za-z]+=/.test(line));
    settings = new Map(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
  });

  it('waits longer for a stop than the runner may drain', () => {
    const { drainMs } = readConfig({});
    expect(Number(settings.get('TimeoutStopSec')) * 1_000).toBeGreaterThan(2 * drainMs);
  });

  it('takes the exit code of an interrupted start for no failure', () => {
    expect(settings.get('SuccessExitStatus')).toBe(String(EXIT.interrupted));
  });

  it('leaves its cgroup and what becoming another user takes to the runner, and makes that user as the runner would', async () => {
    expect(settings.get('Delegate')).toBe('yes');
    const rights = settings.get('CapabilityBoundingSet')?.split(' ');
    expect(rights).toEqual(expect.arrayContaining(['CAP_SETUID', 'CAP_SETGID', 'CAP_CHOWN', 'CAP_KILL']));
    expect(settings.get('ExecStartPre')).toContain(`|| useradd ${USERADD.join(' ')} ${DEFAULT_USER}'`);
  });

  it('lets the runner write its data, its cache and its run folder, and removes none that runners share', () => {
    const folders = ['StateDirectory', 'CacheDirectory', 'RuntimeDirectory'].map((name) => settings.get(name));
    expect(folders).toEqual(['gymbus', 'gymbus', 'gymbus']);
    expect(settings.get('ReadWritePaths')).toBe('/var/lib/gymbus /var/cache/gymbus');
    // systemd removes a runtime directory with the first unit that ends, sockets of the others' machines in it or not.
    expect(settings.get('RuntimeDirectoryPreserve')).toBe('yes');
  });
});
