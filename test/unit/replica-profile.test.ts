import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emptyProfile, estimatesOf, MOST_KEPT, mergeSamples, priorOf } from '../../runner/replica/profile.ts';
import { addToProfile, readProfile } from '../../runner/replica/profile-file.ts';

const mib = 2 ** 20;
const fresh = emptyProfile({ image: 'desk', image_digest: 'd', accelerator: 'tcg', memory_mib: 1_024 });
const many = (value: number, count = 8): number[] => Array.from({ length: count }, () => value);

describe('a profile', () => {
  it('assumes what was not measured often enough, and says so', () => {
    const few = estimatesOf(mergeSamples(fresh, { hot_bytes: many(70 * mib, 7) }));
    expect(few.hot_bytes).toEqual({ value: priorOf('tcg', 1_024).hot_bytes, samples: 7, assumed: true });
    expect(few.memory_bandwidth).toEqual({ value: null, samples: 0, assumed: true });
    const enough = estimatesOf(mergeSamples(fresh, { hot_bytes: many(70 * mib) }));
    expect(enough.hot_bytes).toEqual({ value: 70 * mib, samples: 8, assumed: false });
  });

  it('takes the median, and of acting memory and of disk nearly the largest', () => {
    const values = Array.from({ length: 20 }, (_, n) => n + 1);
    const all = estimatesOf(
      mergeSamples(fresh, { hot_bytes: values, acting_bytes: values, episode_disk_bytes: values }),
    );
    expect([all.hot_bytes, all.acting_bytes, all.episode_disk_bytes].map(({ value }) => value)).toEqual([10, 19, 19]);
    // One that went mad moves neither.
    const outlier = estimatesOf(mergeSamples(fresh, { acting_bytes: [...many(100, 40), 1e12] }));
    expect(outlier.acting_bytes.value).toBe(100);
  });

  it('keeps the latest, a bounded number, whatever it is fed', () => {
    const sample = fc.oneof(fc.double(), fc.integer());
    fc.assert(
      fc.property(fc.array(fc.array(sample, { maxLength: 100 }), { maxLength: 5 }), (rounds) => {
        let profile = fresh;
        for (const clone_ms of rounds) profile = mergeSamples(profile, { clone_ms });
        const fit = rounds.flat().filter((value) => Number.isFinite(value) && value >= 0);
        const { count = 0, values = [] } = profile.figures.clone_ms ?? {};
        expect(count).toBe(fit.length);
        expect(values).toEqual(fit.slice(-MOST_KEPT));
      }),
    );
  });
});

describe('its file', () => {
  let area: string;
  const folder = (): string => path.join(area, 'templates', 'k');
  beforeEach(async () => {
    area = await mkdtemp(path.join(tmpdir(), 'gymbus-profile-'));
    await mkdir(folder(), { recursive: true });
  });
  afterEach(() => rm(area, { recursive: true }));

  it('has what two runners learned, and no draft', async () => {
    expect(await readProfile(area, 'k')).toBeNull();
    await addToProfile(area, 'k', 'host-a', fresh, { clone_ms: [1] });
    const both = await addToProfile(area, 'k', 'host-b', fresh, { clone_ms: [2], idle_cpu: [0.5] });
    expect(both.figures).toEqual({ clone_ms: { count: 2, values: [1, 2] }, idle_cpu: { count: 1, values: [0.5] } });
    expect(await readProfile(area, 'k')).toEqual(both);
    expect(await readdir(folder())).toEqual(['profile.json']);
  });

  it('is begun anew when it cannot be read, and makes no folder for a template that is gone', async () => {
    await writeFile(path.join(folder(), 'profile.json'), '{"schema": "gymbus.pro');
    expect(await readProfile(area, 'k')).toBeNull();
    expect((await addToProfile(area, 'k', 'host-a', fresh, { clone_ms: [1] })).figures.clone_ms?.count).toBe(1);
    await expect(addToProfile(area, 'gone', 'host-a', fresh, { clone_ms: [1] })).rejects.toMatchObject({
      code: 'ENOENT',
    });
    expect(await readdir(path.join(area, 'templates'))).toEqual(['k']);
  });
});
