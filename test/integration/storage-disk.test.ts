import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StorageFull } from '../../runner/storage/errors.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { Step } from '../../schemas/index.ts';
import { never, newAddress, openPlace, recordStep, type TestPlace } from '../support/recording.ts';
import { available } from '../support/requirement.ts';
import { samplePng, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

describe.skipIf(!available('fault'))('a spool without room', () => {
  let server: Awaited<ReturnType<typeof startVersitygw>>;
  let mount: string;
  let place: TestPlace;

  beforeAll(async () => {
    server = await startVersitygw();
    mount = await mkdtemp(path.join(os.tmpdir(), 'gymbus-small-'));
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', mount]);
    place = await openPlace(server, { spoolRoot: path.join(mount, 'spool') });
    await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
  });
  afterAll(async () => {
    await place?.[Symbol.asyncDispose]();
    await execa('umount', [mount]);
    await rm(mount, { recursive: true });
    await server?.stop();
  });

  it('fails the step with an error of its own; what was recorded before is whole and can be finished', async () => {
    await using recording = await place.begin();
    const png = samplePng(400, 300);
    let full: unknown;
    let recorded = 0;
    while (full === undefined && recorded < 100) {
      await recordStep(recording, recorded, png).then(
        () => recorded++,
        (error) => {
          full = error;
        },
      );
    }
    expect(full).toBeInstanceOf(StorageFull);
    expect((full as Error).message).toMatch(/no room on disk for .*spool.*GYMBUS_DATA/);
    expect(recorded).toBeGreaterThan(10);
    expect(place.spool.bytes()).toBeGreaterThan(2 << 20);

    const folder = path.join(place.spool.root, recording.address.attempt);
    expect((await readdir(folder)).filter((name) => name.startsWith('.'))).toEqual([]);
    const text = await readFile(path.join(folder, 'trajectory.jsonl'), 'utf8');
    const steps = text
      .trimEnd()
      .split('\n')
      .map((line) => Step.parse(JSON.parse(line)).step);
    expect(steps).toEqual(Array.from({ length: recorded }, (_, step) => step));

    expect(await recording.leave(20_000)).toBe(true);
  });

  it('a growing file that does not fit is taken back to its last whole line', async () => {
    await using recording = await place.begin();
    const filler = path.join(mount, 'filler');
    await recording.setup({ index: 0 });
    await writeFile(filler, Buffer.alloc(4 << 20)).catch(() => {});
    // More than what is left in the file's last page.
    await expect(recording.setup({ index: 1, stdout: 'x'.repeat(10_000) })).rejects.toThrow(StorageFull);
    await rm(filler);
    await recording.setup({ index: 2 });
    const { objects } = await recording.finish({ outcome: sampleResult(recording.address), versions: {} }, never);
    const object = objects.find(({ key }) => key.endsWith('setup.jsonl'));
    expect((await place.store.get(object?.key ?? '', 1 << 20)).toString()).toBe('{"index":0}\n{"index":2}\n');
  });

  it('takes no new attempt and leaves nothing of it; with room again it does', async () => {
    const filler = path.join(mount, 'filler');
    await writeFile(filler, Buffer.alloc(4 << 20)).catch(() => {});
    const address = newAddress();
    await expect(place.begin(address)).rejects.toThrow(StorageFull);
    expect(existsSync(path.join(place.spool.root, address.attempt))).toBe(false);
    await rm(filler);
    await using recording = await place.begin(address);
    await recordStep(recording, 0);
    expect(await recording.leave(10_000)).toBe(true);
  });

  it('loses log lines rather than the attempt, and says how many', async () => {
    await using recording = await place.begin();
    const filler = path.join(mount, 'filler');
    await writeFile(filler, Buffer.alloc(4 << 20)).catch(() => {});
    recording.log.write(`${JSON.stringify({ msg: 'x'.repeat(20_000) })}\n`);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await rm(filler);
    const { objects } = await recording.finish({ outcome: sampleResult(recording.address), versions: {} }, never);
    const log = objects.find(({ key }) => key.endsWith('runner.log'));
    const lines = (await place.store.get(log?.key ?? '', 1 << 20)).toString().trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ lost: 1, msg: 'log lines were lost' }]);
  });
});
