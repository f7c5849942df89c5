import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Launcher, type LaunchOrder } from '../../runner/qemu/launcher.ts';
import { readStat } from '../../runner/qemu/proc-stat.ts';
import { OWN_RIGHTS } from '../../runner/qemu/rights.ts';

let folder: string;
let launcher: Launcher;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-launcher-'));
  launcher = new Launcher();
});
afterEach(async () => {
  await launcher[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const order = (script: string, more: Partial<LaunchOrder> = {}): LaunchOrder => ({
  ...{ command: ['sh', '-c', script], rights: OWN_RIGHTS, files: [], channels: [2, 5], folder },
  ...more,
});
const parentOf = (pid: number): number => Number(readStat(`/proc/${pid}`)?.[1]);
const isThere = (pid: number): boolean => existsSync(`/proc/${pid}`);
/** All that comes through a channel until the process ends. */
async function read(channel: NodeJS.ReadableStream | undefined): Promise<string> {
  let text = '';
  for await (const chunk of channel ?? []) text += chunk.toString();
  return text;
}

describe('a launched process', () => {
  it('finds its files and channels under their numbers, and nothing else of ours', async () => {
    await writeFile(path.join(folder, 'in'), 'a file');
    await writeFile(path.join(folder, 'both'), '');
    const files = [
      { fd: 3, path: path.join(folder, 'in'), access: 'r' },
      { fd: 9, path: path.join(folder, 'both'), access: 'r+' },
    ] as const;
    const script =
      'read line <&5; echo "$line" >&9; cat <&3 >&5; ls /proc/$$/fd | grep -x "[0-9][0-9]\\?" | tr "\\n" " " >&5; echo words >&2';
    const { channels, exited } = await launcher.start(order(script, { files }));
    const [stderr, channel] = channels;
    channel?.write('a line\n');
    expect(await Promise.all([read(channel), read(stderr)])).toEqual(['a file0 1 2 3 5 9 ', 'words\n']);
    expect(await exited).toEqual({ code: 0, signal: null });
    expect(await readFile(path.join(folder, 'both'), 'utf8')).toBe('a line\n');
    expect(await readdir(folder), 'the socket is gone').toEqual(['both', 'in']);
  });

  it('has no signal blocked or ignored, and gets only the environment that QEMU needs', async () => {
    // The shell itself blocks signals for a moment now and then.
    const signals = await launcher.start(order('exec grep -E "^Sig(Blk|Ign)" /proc/self/status >&5'));
    expect(await read(signals.channels[1])).toBe('SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n');
    const names = 'env | cut -d= -f1 | grep -vE "^(PWD|OLDPWD|SHLVL|_)$" | sort >&5';
    expect(await read((await launcher.start(order(names))).channels[1])).toBe('LC_ALL\nPATH\n');
  });

  it.each([
    ['exit 7', { code: 7, signal: null }],
    ['kill -SEGV $$', { code: null, signal: 'SIGSEGV' }],
    ['kill -KILL $$', { code: null, signal: 'SIGKILL' }],
  ])('%s: its end is told as it was', async (script, exit) => {
    const { exited } = await launcher.start(order(script));
    expect(await exited).toEqual(exit);
  });

  it('is killed, once or twice', async () => {
    const launched = await launcher.start(order('exec sleep 600'));
    const exits = await Promise.all([launched.kill(), launched.kill()]);
    expect(exits).toEqual(Array(2).fill({ code: null, signal: 'SIGKILL' }));
    expect(isThere(launched.pid)).toBe(false);
    expect(await launched.kill()).toEqual(exits[0]);
  });

  it('is one of many, started at once by one process', async () => {
    const scripts = Array.from({ length: 40 }, (_, n) => n);
    const all = await Promise.all(
      scripts.map(async (n) => {
        const own = await mkdtemp(path.join(folder, 'own-'));
        return launcher.start(order(`read line; read line <&5; echo ${n} $line >&5; exit ${n}`, { folder: own }));
      }),
    );
    expect(new Set(all.map(({ pid }) => parentOf(pid))).size).toBe(1);
    for (const [n, { channels }] of all.entries()) channels[1]?.write(`is ${n}\n`);
    expect(await Promise.all(all.map(({ channels }) => read(channels[1])))).toEqual(
      scripts.map((n) => `${n} is ${n}\n`),
    );
    expect(await Promise.all(all.map(({ exited }) => exited))).toEqual(scripts.map((code) => ({ code, signal: null })));
  });
});

describe('what cannot be launched', () => {
  it.each([
    [
      'a file that is not there',
      { files: [{ fd: 3, path: '/no/such/file', access: 'r' }] },
      /cannot open \/no\/such\/file/,
    ],
    [
      'a group that is not there',
      { rights: { ...OWN_RIGHTS, joins: ['/no/such/tasks'] } },
      /cannot join \/no\/such\/tasks/,
    ],
    ['a command that is not there', { command: ['/no/such/qemu'] }, /cannot start \/no\/such\/qemu/],
  ] as const)('%s: ends and says why', async (_, more, reason) => {
    const { channels, exited } = await launcher.start(order('true', more));
    expect(await read(channels[0])).toMatch(reason);
    expect((await exited).code).toBeGreaterThan(0);
  });

  it('a folder without room for a socket: nothing is started', async () => {
    await expect(launcher.start(order('true', { folder: path.join(folder, 'none') }))).rejects.toThrow('launch.sock');
  });
});

describe('the launcher', () => {
  it('dies, and all it started with it: each is told of, and the next order finds another', async () => {
    const all = await Promise.all(
      [1, 2, 3].map(async () =>
        launcher.start(order('exec sleep 600', { folder: await mkdtemp(path.join(folder, 'own-')) })),
      ),
    );
    process.kill(parentOf(all[0]?.pid ?? 0), 'SIGKILL');
    for (const { pid, exited } of all) {
      expect(await exited).toEqual({ code: null, signal: 'SIGKILL' });
      expect([undefined, 'Z']).toContain(readStat(`/proc/${pid}`)?.[0]);
    }
    const { exited } = await launcher.start(order('exit 3'));
    expect(await exited).toEqual({ code: 3, signal: null });
  });

  it('takes no notice of what a terminal or a service manager sends to all', async () => {
    const { pid, kill } = await launcher.start(order('trap "" INT TERM HUP; while :; do sleep 1; done'));
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.kill(parentOf(pid), signal);
    expect(await kill()).toEqual({ code: null, signal: 'SIGKILL' });
  });

  it('is waited for by who closes it, also where nothing else is left to wait for', async () => {
    const script = `
      import { Launcher } from '${path.resolve(import.meta.dirname, '../../runner/qemu/launcher.ts')}';
      const launcher = new Launcher();
      const { kill } = await launcher.start(${JSON.stringify(order('exec sleep 600'))});
      await kill();
      await launcher[Symbol.asyncDispose]();
      console.log('closed');
    `;
    const user = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [said, [code]] = await Promise.all([read(user.stdout), once(user, 'exit')]);
    expect([said, code]).toEqual(['closed\n', 0]);
  });

  it('lets its user end, and ends with it, and so does all it started', async () => {
    const script = `
      import { Launcher } from '${path.resolve(import.meta.dirname, '../../runner/qemu/launcher.ts')}';
      const started = await new Launcher().start(${JSON.stringify(order('exec sleep 600'))});
      console.log(started.pid);
      for (const channel of started.channels) channel.unref();
    `;
    const user = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = await once(user.stdout, 'data');
    const pid = Number(line);
    expect(await readlink(`/proc/${pid}/exe`).catch(() => '')).not.toBe(process.execPath);
    if (user.exitCode === null) await once(user, 'exit');
    expect(user.exitCode).toBe(0);
    await expect.poll(() => [undefined, 'Z'].includes(readStat(`/proc/${pid}`)?.[0])).toBe(true);
  });
});
