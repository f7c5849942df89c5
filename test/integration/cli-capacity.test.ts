import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runGymbus } from '../support/command.ts';
import { available } from '../support/requirement.ts';

let folder: string;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-cli-capacity-'));
  await runGymbus(['--version'], {});
  env = { GYMBUS_DATA: folder, NATS_URL: '', AWS_ENDPOINT_URL: '', GYMBUS_ACCEL: 'tcg' };
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe('gymbus capacity', () => {
  it.each([
    ['cores=8,memory=16,disk=1T', 'gymbus: --host memory=16: must be a size with M, G or T, like memory=768G'],
    ['cores=8,memory=16G', 'gymbus: --host: disk is missing; write it like cores=88,'],
  ])('refuses a host that it cannot read: %s', async (spec, message) => {
    const { exitCode, stdout, stderr } = await runGymbus(['capacity', '--host', spec], env);
    expect([exitCode, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
    expect(stderr).not.toContain('    at ');
  });

  it('refuses a price that is none', async () => {
    const { exitCode, stderr } = await runGymbus(['capacity'], { ...env, GYMBUS_USD_PER_DAY: '-3' });
    expect(exitCode).toBe(2);
    expect(stderr).toContain('GYMBUS_USD_PER_DAY');
  });

  it.skipIf(!available('reflink'))('says what makes an image where there is none', async () => {
    const { exitCode, stderr } = await runGymbus(['capacity'], { ...env, GYMBUS_CACHE: path.join(folder, 'cache') });
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^gymbus: none of debian-desktop is in .*: gymbus image build makes/);
  });
});
