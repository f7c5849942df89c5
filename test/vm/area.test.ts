import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AreaUnavailable, openArea, removeArea, type StorageArea } from '../../runner/storage/area.ts';
import { canReflink, reflink } from '../../runner/storage/clone.ts';

let dataDir: string;
const floorBytes = 2 ** 31;
const open = (): Promise<StorageArea> => openArea({ dataDir, floorBytes });
const mounted = async (): Promise<boolean> => (await readFile('/proc/mounts', 'utf8')).includes(` ${dataDir}/area `);
const loops = async (): Promise<number> =>
  (await readFile('/proc/mounts', 'utf8')).split('\n').filter((line) => line.includes(dataDir)).length;

beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'gymbus-area-'));
});
afterEach(async () => {
  await removeArea(dataDir);
  await rm(dataDir, { recursive: true });
});

describe('the storage area', () => {
  it('clones files by sharing their blocks, on whatever file system the data is', async () => {
    await using area = await open();
    expect(await canReflink(area.path)).toBe(true);
    const source = path.join(area.path, 'source');
    await writeFile(source, Buffer.alloc(64 * 2 ** 20, 7));
    const before = await area.freeBytes();
    for (let n = 0; n < 20; n += 1) await reflink(source, path.join(area.path, `clone-${n}`));
    expect(before - (await area.freeBytes())).toBeLessThan(16 * 2 ** 20);
    expect((await readFile(path.join(area.path, 'clone-3'))).equals(await readFile(source))).toBe(true);
    await expect(reflink(source, path.join(area.path, 'clone-3'))).rejects.toMatchObject({ code: 'EEXIST' });
  });

  it('says in one line which it is', async () => {
    await using area = await open();
    const loop = await mounted();
    expect(area.description).toBe(
      loop
        ? `storage area: ${dataDir}/area, an XFS file system in ${dataDir}/area.xfs (${dataDir} itself cannot reflink)`
        : `storage area: ${dataDir}/area, whose file system can reflink`,
    );
  });

  it('counts the room under it as well as the room in it', async () => {
    await using area = await open();
    const under = await statfs(dataDir);
    expect(await area.freeBytes()).toBeLessThanOrEqual(under.bavail * under.bsize);
    expect(await area.freeBytes()).toBeGreaterThan(2 ** 30);
  });

  it('is left mounted by all but the last of those who use it', async () => {
    const [one, two] = await Promise.all([open(), open()]);
    await writeFile(path.join(one.path, 'kept'), 'x');
    const was = await mounted();
    await one[Symbol.asyncDispose]();
    await one[Symbol.asyncDispose]();
    expect(await mounted()).toBe(was);
    expect(await readFile(path.join(two.path, 'kept'), 'utf8')).toBe('x');
    await two[Symbol.asyncDispose]();
    expect(await loops()).toBe(0);
    await using again = await open();
    expect(await readFile(path.join(again.path, 'kept'), 'utf8')).toBe('x');
  });

  it('is shared between processes, and found again after one is killed in it', async () => {
    const script = `
      const { openArea } = await import('${path.resolve('runner/storage/area.ts')}');
      const area = await openArea({ dataDir: '${dataDir}', floorBytes: ${floorBytes} });
      console.log(area.path);
      setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(createInterface({ input: child.stdout }), 'line', { signal: AbortSignal.timeout(60_000) });
    const was = await mounted();
    const mine = await open();
    await mine[Symbol.asyncDispose]();
    expect(await mounted()).toBe(was);
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await mounted()).toBe(was);
    await (await open())[Symbol.asyncDispose]();
    expect(await mounted()).toBe(false);
  });

  it('is not to be had on a disk too full for it, and says how full', async () => {
    if (await canReflink(dataDir)) return;
    const full = openArea({ dataDir, floorBytes: 2 ** 50 });
    await expect(full).rejects.toBeInstanceOf(AreaUnavailable);
    await expect(full).rejects.toThrow(
      /too little room for a storage area: \d+\.\d GiB free, 1048576\.0 GiB of it kept free/,
    );
  });
});
