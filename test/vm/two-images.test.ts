import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

const RUNNER = 'test-two-images';
const FIRST = 'debian-desktop';
const SECOND = 'second-desktop';
/** The template of the second image is made here the first time. */
const TEMPLATE_MS = 10 * 60_000;
const FILL_MS = 90_000;

let vm: Fixture;
let folder: string;
beforeAll(async () => {
  vm = await openFixture(RUNNER);
});
afterAll(() => vm?.[Symbol.asyncDispose]());
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'gymbus-two-images-'));
});
afterEach(() => rm(folder, { recursive: true }));

/** The same files under another name: to an engine they are another image. */
function second() {
  const digest = createHash('sha256').update(`${SECOND} ${vm.image.digest}`).digest('hex');
  return { ...vm.image, name: SECOND, digest, manifest: { ...vm.image.manifest, name: SECOND, digest } };
}

const phasesOf = (pool: VirtualPool, name: string) => pool.states().find(({ image }) => image === name)?.phases;

describe('a pool of two images', () => {
  it(
    'keeps warm ones of that which is asked for, takes them from the other, and hands out of each what was asked for',
    async () => {
      const images = [vm.image, second()];
      const pace = { lookMs: 250, hotIdleMs: 3_000, frozenIdleMs: 3_600_000 };
      await using pool = await vm.pool({ acting: 2 }, RUNNER, {
        images,
        pace,
        ledgerFolder: path.join(folder, 'ledger'),
      });
      const reach = (image: string, phases: object) =>
        expect.poll(() => phasesOf(pool, image), { timeout: FILL_MS }).toEqual(phases);

      pool.expect(FIRST, 6);
      await reach(FIRST, { hot: 2, frozen: 2 });
      await reach(SECOND, { frozen: 2 });

      pool.expect(FIRST, 0);
      pool.expect(SECOND, 6);
      await reach(SECOND, { hot: 2, frozen: 2 });
      await reach(FIRST, { frozen: 2 });

      pool.expect(FIRST, 3);
      await Promise.all([FIRST, SECOND].map((image) => pool.waitReady(image, never)));
      const replicas = await Promise.all([FIRST, SECOND].map((image) => pool.reserve(image)?.claim(never)));
      expect(replicas.map((replica) => replica?.image.name)).toEqual([FIRST, SECOND]);
      for (const replica of replicas) {
        if (!replica) throw new Error('nothing to reserve');
        expect((await replica.screenshot(never)).length).toBeGreaterThan(1_000);
        await replica.discard();
      }
      // One is as good as the other, however often they take turns.
      for (const image of [SECOND, FIRST, SECOND]) {
        await pool.waitReady(image, never);
        const replica = await pool.reserve(image)?.claim(never);
        expect(replica?.image.name).toBe(image);
        await replica?.discard();
      }
    },
    TEMPLATE_MS,
  );
});
