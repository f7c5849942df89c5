import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chooseAccelerator } from '../../runner/qemu/accelerator.ts';
import { findQemu, type QemuBinary } from '../../runner/qemu/binary.ts';
import { bootsKernel, runsFirmware } from '../../runner/qemu/tiny-guest.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

let vm: Fixture;
let qemu: QemuBinary;
let cacheDir: string;
beforeAll(async () => {
  vm = await openFixture('test-accelerator');
  qemu = await findQemu();
  cacheDir = await mkdtemp(path.join(tmpdir(), 'gymbus-accelerator-'));
});
afterAll(async () => {
  await rm(cacheDir, { recursive: true });
  await vm?.[Symbol.asyncDispose]();
});

describe('the accelerator', () => {
  it('is probed with guests that do run under emulation', async () => {
    expect(await runsFirmware(qemu.path, 'tcg', 20_000, never)).toBeNull();
    expect(await bootsKernel(qemu.path, 'tcg', vm.image.kernelPath, 90_000, never)).toBeNull();
  });

  it('is not believed in for a guest that does not come up', async () => {
    const started = performance.now();
    expect(await bootsKernel(qemu.path, 'tcg', vm.image.kernelPath, 300, never)).toBe(
      'it did not come up within 300 ms',
    );
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(await bootsKernel(qemu.path, 'tcg', '/no/such/kernel', 20_000, never)).toContain('/no/such/kernel');
  });

  it('is found out once, with the reason', async () => {
    const question = { wanted: 'auto', qemu, kernelPath: vm.image.kernelPath, cacheDir, signal: never } as const;
    const first = await chooseAccelerator(question);
    expect(first.reason.length).toBeGreaterThan(10);
    const started = performance.now();
    expect(await chooseAccelerator(question)).toEqual(first);
    expect(performance.now() - started).toBeLessThan(1_000);
    expect(await readdir(path.join(cacheDir, 'accelerator'))).toHaveLength(1);
  });

  it('is what a setting says, untested', async () => {
    const question = { qemu, kernelPath: null, cacheDir, signal: never };
    expect(await chooseAccelerator({ ...question, wanted: 'kvm' })).toEqual({
      accelerator: 'kvm',
      reason: 'GYMBUS_ACCEL=kvm',
    });
    expect((await chooseAccelerator({ ...question, wanted: 'tcg' })).accelerator).toBe('tcg');
  });
});
