import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findLeaks, type TestRun } from '../support/leaks.ts';
import { available } from '../support/requirement.ts';

const NAME = 'gymbus-0a1b2c3d';
let folder: string;
let run: TestRun;
const started: number[] = [];
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-leaks-'));
  for (const place of ['own', 'own-not', 'shared/area', 'elsewhere']) {
    await mkdir(path.join(folder, place), { recursive: true });
    await writeFile(path.join(folder, place, 'ram'), '');
  }
  run = { mark: `GYMBUS_LEAK_TEST=${path.basename(folder)}`, own: [`${folder}/own`], shared: [`${folder}/shared`] };
});
afterEach(async () => {
  for (const pid of started.splice(0)) process.kill(pid, 'SIGKILL');
  for (let left = true; left; await sleep(20)) left = (await findLeaks(run)).some((leak) => !leak.startsWith('mount'));
  await rm(folder, { recursive: true });
});

/** Starts a program that says a process id on its first line. @returns that id; it is killed when the test is over */
async function start(command: readonly string[], mark?: string): Promise<number> {
  const [name = '', value = ''] = (mark ?? '').split('=');
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    // A machine has nothing else in its environment.
    env: { PATH: process.env.PATH, ...(mark === undefined ? {} : { [name]: value }) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  child.stdout.destroy();
  started.push(Number(line.toString()));
  return Number(line.toString());
}

const SLEEPER = `perl -e '$| = 1; print "$$\\n"; sleep 600' --`;
/** What has a machine's arguments, and as a machine its memory file open, which none of them names. */
const machine = (file: string): string[] => {
  const memory = 'memory-backend-file,id=ram,mem-path=/proc/self/fd/7,share=off';
  return ['sh', '-c', `exec 7< "$0"; exec ${SLEEPER} -name ${NAME} -object ${memory}`, file];
};
/** One that names a file, of which it has none open yet. */
const starting = (file: string): string[] => [
  ...['sh', '-c', `exec ${SLEEPER} -name ${NAME} -chardev "socket,id=agent,path=$0,server=on"`, file],
];
/** Of nobody's: its parent is gone. */
const orphaned = (command: readonly string[]): string[] => ['setsid', '--fork', ...command];
/** Of a runner's, which lives for as long. */
const owned = (command: readonly string[]): string[] => [
  ...['env', `COMMAND=${JSON.stringify(command)}`, 'node', '-e'],
  `const [program, ...args] = JSON.parse(process.env.COMMAND);
   require('node:child_process').spawn(program, args, { env: { PATH: process.env.PATH }, stdio: ['ignore', 1, 2] });`,
];

it('finds what has the mark of the run in its environment, and nothing else', async () => {
  const command = ['perl', '-e', '$| = 1; print "$$\\n"; sleep 600'];
  const pid = await start(command, run.mark);
  await start(command, `${run.mark}-of-another`);
  expect(await findLeaks(run)).toEqual([`process ${pid}: ${command.join(' ')}`]);
});

describe('finds a machine, which has no mark,', () => {
  const found = (pid: number): string[] => [`machine ${pid}: ${NAME}`];

  it('by the process that started it, wherever its files are', async () => {
    const pid = await start(machine(`${folder}/elsewhere/ram`));
    expect(await findLeaks(run)).toEqual(found(pid));
  });

  it('by the mark of the process that started it', async () => {
    const pid = await start(orphaned(owned(machine(`${folder}/elsewhere/ram`))), run.mark);
    expect(await findLeaks(run)).toEqual(expect.arrayContaining(found(pid)));
  });

  it('by its files, when they are in a folder of the run', async () => {
    const pid = await start(orphaned(owned(machine(`${folder}/own/ram`))));
    expect(await findLeaks(run)).toEqual(found(pid));
  });

  it('by a file that it names, when that is in a folder of the run', async () => {
    const pid = await start(orphaned(owned(starting(`${folder}/own/agent.sock`))));
    expect(await findLeaks(run)).toEqual(found(pid));
  });

  it('by its files and having no runner, when they are in a folder that runs share', async () => {
    const pid = await start(orphaned(machine(`${folder}/shared/area/ram`)));
    expect(await findLeaks(run)).toEqual(found(pid));
  });

  it.each([
    ['of another run in a shared folder', () => orphaned(owned(machine(`${folder}/shared/area/ram`)))],
    ['of somebody else', () => orphaned(machine(`${folder}/elsewhere/ram`))],
    ['in a folder with a longer name', () => orphaned(machine(`${folder}/own-not/ram`))],
  ])('but none %s', async (_, command) => {
    await start(command());
    expect(await findLeaks(run)).toEqual([]);
  });
});

describe.skipIf(!available('reflink'))('finds a loop mount', () => {
  async function mounted<T>(place: string, work: (point: string, file: string) => Promise<T>): Promise<T> {
    const [file, point] = [path.join(folder, place, 'disk'), path.join(folder, 'point')];
    await mkdir(point);
    await writeFile(file, '');
    await truncate(file, 8 * 2 ** 20);
    await execa('mkfs.ext4', ['-q', file]);
    await execa('mount', ['-o', 'loop', file, point]);
    try {
      return await work(point, file);
    } finally {
      await execa('umount', [point]);
    }
  }

  it.each(['own', 'shared'])('of a file in a folder of the run: %s', async (place) => {
    await mounted(place, async (point, file) => expect(await findLeaks(run)).toEqual([`mount ${point} of ${file}`]));
  });

  it('but none of a file elsewhere, and none that somebody works in', async () => {
    await mounted('elsewhere', async () => expect(await findLeaks(run)).toEqual([]));
    await rm(path.join(folder, 'point'), { recursive: true });
    await mounted('shared', async (point) => {
      const pid = await start(['sh', '-c', `exec 3> ${point}/open; echo $$; exec sleep 600`]);
      expect(await findLeaks(run)).toEqual([]);
      process.kill(pid, 'SIGKILL');
      started.splice(started.indexOf(pid), 1);
      while ((await findLeaks(run)).length === 0) await sleep(20);
    });
  });
});
