import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BandwidthMeter } from '../../runner/replica/bandwidth.ts';
import { availableMemory, hostNow, numaNodes, openFilesLimit } from '../../runner/replica/host-now.ts';
import { memoryTraffic, ownMemory, processorsBetween } from '../../runner/replica/usage.ts';

let kernel: { proc: string; sys: string };
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-kernel-'));
  kernel = { proc: path.join(folder, 'proc'), sys: path.join(folder, 'sys') };
});
afterEach(() => rm(folder, { recursive: true }));

async function put(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(path.join(folder, file)), { recursive: true });
  await writeFile(path.join(folder, file), text);
}

describe('a host', () => {
  it('is what its kernel says now', async () => {
    await put('proc/meminfo', 'MemTotal: 9 kB\nMemAvailable:    2048 kB\n');
    await put(
      'proc/pressure/memory',
      'some avg10=1.50 avg60=0 avg300=0 total=1\nfull avg10=0.25 avg60=0 avg300=0 total=1\n',
    );
    expect(hostNow(folder, kernel)).toMatchObject({ memoryBytes: 2 ** 21, pressure: { some: 1.5, full: 0.25 } });
    expect(hostNow(folder, kernel).diskBytes).toBeGreaterThan(0);
  });

  it('that gives no account of pressure has none', async () => {
    await put('proc/meminfo', 'MemAvailable: 1 kB\n');
    expect(hostNow(folder, kernel).pressure).toBeNull();
    await put('proc/meminfo', 'MemFree: 1 kB\n');
    expect(() => availableMemory(kernel)).toThrow('has no MemAvailable');
  });

  it.each([
    ['0\n', 1],
    ['0-1\n', 2],
    ['0-1,4\n', 3],
  ])('has as many memory nodes as are listed: %j', async (list, count) => {
    expect(numaNodes(kernel)).toBe(1);
    await put('sys/devices/system/node/has_memory', list);
    expect(numaNodes(kernel)).toBe(count);
  });

  it('tells how many files may be open', async () => {
    expect(openFilesLimit(kernel)).toBe(Number.POSITIVE_INFINITY);
    await put(
      'proc/self/limits',
      'Max processes  10  10  processes\nMax open files            1024                 4096                 files\n',
    );
    expect(openFilesLimit(kernel)).toBe(1_024);
    expect(openFilesLimit()).toBeGreaterThan(0);
  });
});

describe('what is used', () => {
  it('of memory by a process', () => {
    const before = ownMemory(process.pid) ?? 0;
    const touched = Buffer.alloc(64 << 20, 1);
    const more = (ownMemory(process.pid) ?? 0) - before;
    expect(more / touched.length).toBeGreaterThan(0.9);
    expect(more / touched.length).toBeLessThan(1.5);
    expect(ownMemory(2 ** 22 + 1)).toBeNull();
  });

  it('of processors, as if it had never waited for one', () => {
    const from = { atMs: 0, cpuMs: 100, waitedMs: 40 };
    expect(processorsBetween(from, { atMs: 1_000, cpuMs: 350, waitedMs: 540 })).toBe(0.5);
    expect(processorsBetween(from, { atMs: 1_000, cpuMs: 110, waitedMs: 1_040 })).toBeNull();
  });

  it('of memory bandwidth, where the host counts it', async () => {
    expect(memoryTraffic(kernel)).toBeNull();
    await put('sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes', '1000\n');
    await put('sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes', '24\n');
    expect(memoryTraffic(kernel)).toBe(1_024);
    const meter = new BandwidthMeter();
    expect(meter.look(kernel, 2, 1_000)).toBeNull();
    await put('sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes', '5000\n');
    expect(meter.look(kernel, 2, 1_500), '4000 bytes in half a second by two').toBe(4_000);
    expect(meter.look(kernel, 3, 2_000), 'one more acts now').toBeNull();
    await put('sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes', 'Unavailable\n');
    expect(memoryTraffic(kernel)).toBeNull();
  });
});
