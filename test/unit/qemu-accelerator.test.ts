import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chooseAccelerator } from '../../runner/qemu/accelerator.ts';
import { bootsKernel, runsFirmware } from '../../runner/qemu/tiny-guest.ts';

const never = new AbortController().signal;
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-accelerator-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** A program in QEMU's place, with which no guest comes up. */
async function brokenQemu(script: string): Promise<string> {
  const file = path.join(folder, 'qemu');
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
  return file;
}

async function choose(cacheDir: string): Promise<string> {
  const qemu = { path: await brokenQemu('exit 1'), version: '0', digest: 'none' };
  return (await chooseAccelerator({ wanted: 'auto', qemu, kernelPath: null, cacheDir, signal: never })).accelerator;
}

describe('what is remembered of an accelerator', () => {
  it('is as good as nothing when its file was cut short', async () => {
    expect(await choose(folder)).toBe('tcg');
    const [name = ''] = await readdir(path.join(folder, 'accelerator'));
    const file = path.join(folder, 'accelerator', name);
    const whole = await readFile(file, 'utf8');
    for (const text of ['', whole.slice(0, 10), '{}']) {
      await writeFile(file, text);
      expect(await choose(folder)).toBe('tcg');
      expect(await readFile(file, 'utf8')).toBe(whole);
    }
  });

  it('is asked again after a day, when it was that KVM does not work', async () => {
    await choose(folder);
    const [name = ''] = await readdir(path.join(folder, 'accelerator'));
    const file = path.join(folder, 'accelerator', name);
    const remembered = async (accelerator: 'kvm' | 'tcg', hours: number): Promise<boolean> => {
      await writeFile(file, JSON.stringify({ accelerator, reason: 'as it was' }));
      const then = Date.now() / 1_000 - hours * 3_600;
      await utimes(file, then, then);
      await choose(folder);
      return (await readFile(file, 'utf8')).includes('as it was');
    };
    expect([await remembered('tcg', 23), await remembered('tcg', 25), await remembered('kvm', 1_000)]).toEqual([
      ...[true, false, true],
    ]);
  });

  it('need not be remembered', async () => {
    await writeFile(path.join(folder, 'file'), '');
    expect(await choose(path.join(folder, 'file'))).toBe('tcg');
  });
});

describe('a guest booted to find out', () => {
  it.skipIf(process.getuid?.() !== 0)('can be read by QEMU’s user, whatever the umask', async () => {
    await chmod(folder, 0o755);
    // 67: as a guest ends that came up.
    const qemu = await brokenQemu(`for file in "$@"; do
      case $file in /*/firmware | /*/initrd) cat "$file" > /dev/null && echo 'gymbus: up' && exit 67 ;; esac
    done; exit 1`);
    const kernel = path.join(folder, 'kernel');
    await writeFile(kernel, '');
    const user = { name: 'nobody', uid: 65_534, gid: 65_534, groups: [] };
    const before = process.umask(0o077);
    try {
      expect(await runsFirmware(qemu, 'tcg', 10_000, never, user)).toBeNull();
      expect(await bootsKernel(qemu, 'tcg', kernel, 10_000, never, user)).toBeNull();
    } finally {
      process.umask(before);
    }
  });

  it('dies with its runner', async () => {
    const pidFile = path.join(folder, 'pid');
    const qemu = await brokenQemu(`echo $$ > ${pidFile}; exec sleep 600`);
    const module = new URL('../../runner/qemu/tiny-guest.ts', import.meta.url).href;
    const code = `const { runsFirmware } = await import(${JSON.stringify(module)});
      await runsFirmware(${JSON.stringify(qemu)}, 'tcg', 600_000, new AbortController().signal);`;
    const runner = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code], {
      env: { ...process.env, TMPDIR: folder },
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const ended = once(runner, 'exit');
    const pid = async (): Promise<number> => Number(await readFile(pidFile, 'utf8').catch(() => ''));
    await expect.poll(pid, { timeout: 10_000 }).toBeGreaterThan(0);
    const guest = await pid();
    runner.kill('SIGKILL');
    await ended;
    const alive = async (): Promise<string> => readFile(`/proc/${guest}/cmdline`, 'utf8').catch(() => '');
    await expect.poll(alive, { timeout: 10_000 }).toBe('');
  });
});
