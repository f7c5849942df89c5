import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { mergedBytes, openMerging } from '../../runner/replica/ksm.ts';

let root: string;
let sys: string;
let said: { msg: string }[];
const log = pino({ level: 'info' }, { write: (line: string) => said.push(JSON.parse(line)) });
const former = { run: '0\n', pages_to_scan: '100\n', sleep_millisecs: '20\n' };
const program = path.resolve(import.meta.dirname, '../support/ksm-process.ts');

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'gymbus-ksm-'));
  sys = path.join(root, 'sys');
  said = [];
  await mkdir(path.join(sys, 'kernel/mm/ksm'), { recursive: true });
  for (const [name, value] of Object.entries({ ...former, pages_sharing: '10\n' })) await set(name, value);
});
afterEach(() => rm(root, { recursive: true }));

const set = (name: string, value: string) => writeFile(path.join(sys, 'kernel/mm/ksm', name), value);
const read = async (name: string) => (await readFile(path.join(sys, 'kernel/mm/ksm', name), 'utf8')).trim();
const settings = () => Promise.all(['run', 'pages_to_scan', 'sleep_millisecs'].map(read));
const open = (wanted: boolean) => openMerging(root, wanted, log, { sys });
/** Another runner that merges, until it is killed. */
async function another() {
  const child = execa(process.execPath, ['--import', 'tsx', program, root, sys], { reject: false });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  // The child itself would be waited for: it is a promise of its end.
  return { child };
}

describe('merging of memory', () => {
  it('is on while a runner wants it, and then as it was', async () => {
    const one = await open(true);
    expect([one.on, await settings()]).toEqual([true, ['1', '1000', '50']]);
    expect(mergedBytes({ sys })).toBe(40_960);
    await one[Symbol.asyncDispose]();
    expect(await settings()).toEqual(['0', '100', '20']);
    expect(await readdir(path.join(root, 'ksm'))).toEqual([]);
    expect(said).toEqual([]);
  });

  it('stays on while another wants it, and is restored by the last', async () => {
    const { child: other } = await another();
    const one = await open(true);
    await one[Symbol.asyncDispose]();
    expect(await read('run')).toBe('1');
    const two = await open(true);
    other.kill('SIGKILL');
    await other;
    await two[Symbol.asyncDispose]();
    expect(await settings()).toEqual(['0', '100', '20']);
  });

  it('is restored after a runner that was killed by the next to start, which may not want it', async () => {
    await set('pages_to_scan', '321');
    const { child: other } = await another();
    expect(await read('run')).toBe('1');
    other.kill('SIGKILL');
    await other;
    expect(await read('run')).toBe('1');
    await using _next = await open(false);
    expect(await settings()).toEqual(['0', '321', '20']);
  });

  it('keeps what was set before, not what a killed runner left', async () => {
    const { child: other } = await another();
    other.kill('SIGKILL');
    await other;
    await (await open(true))[Symbol.asyncDispose]();
    expect(await settings()).toEqual(['0', '100', '20']);
  });

  it('is said to be missing once, and is no error, where the kernel has none', async () => {
    await rm(path.join(sys, 'kernel/mm/ksm'), { recursive: true });
    await using one = await open(true);
    expect(one.on).toBe(false);
    expect(said.map(({ msg }) => msg)).toEqual([expect.stringMatching(/^GYMBUS_KSM=on, but this kernel cannot/)]);
    expect(mergedBytes({ sys })).toBeNull();
  });

  it('is said not to be allowed, and what was changed is as before', async () => {
    const refused = path.join(sys, 'kernel/mm/ksm/sleep_millisecs');
    await rm(refused);
    // Even root may not write to it.
    await symlink('/proc/version', refused);
    await using one = await open(true);
    expect(one.on).toBe(false);
    expect((await settings()).slice(0, 2)).toEqual(['0', '100']);
    expect(said[0]?.msg).toMatch(/^GYMBUS_KSM=on, but it cannot be turned on here/);
    expect(await readdir(path.join(root, 'ksm'))).toEqual([]);
  });
});
