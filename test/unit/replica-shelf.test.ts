import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Engine } from '../../runner/replica/engine.ts';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import { Shelf } from '../../runner/replica/shelf.ts';
import type { Template } from '../../runner/replica/template.ts';

let area: string;
let template: Template;
/** One for each time that the template was to be made anew. */
let rebuilds: { signal: AbortSignal; over: boolean }[];
let shelf: Shelf;
let refusal: string | null;

beforeEach(async () => {
  area = await mkdtemp(path.join(tmpdir(), 'gymbus-shelf-'));
  rebuilds = [];
  const engine = {
    area: { path: area },
    isolation: { cgroups: null },
    ...{ runnerId: 'test', runRoot: path.join(area, 'run'), log: pino({ level: 'silent' }) },
  } as unknown as Engine;
  // Its files are not there: what is made of it ends at its check, before anything is started.
  template = {
    ...{ key: 'k', image: { name: 'desk', digest: 'd' }, memoryPath: path.join(area, 'none') },
  } as unknown as Template;
  const rebuild = async (signal: AbortSignal): Promise<Template> => {
    const one = { signal, over: false };
    rebuilds.push(one);
    try {
      await sleep(60_000, undefined, { signal });
      return template;
    } finally {
      // A machine takes a moment to be killed.
      await sleep(50);
      one.over = true;
    }
  };
  refusal = null;
  shelf = new Shelf(engine, template, 2, rebuild, {
    ...{ changed: () => undefined, admit: () => refusal, cloned: () => undefined, leased: () => undefined },
    ending: async () => undefined,
    ...{ seat: () => null, ranking: () => () => 0, stranded: () => null, restFactor: () => 0 },
  });
});
afterEach(async () => {
  await shelf.close();
  await rm(area, { recursive: true });
});

describe('a shelf whose template is damaged', () => {
  it('has it made anew once, makes nothing meanwhile, and ends that when it is closed', async () => {
    shelf.aim({ hot: 2, frozen: 0 });
    await expect.poll(() => rebuilds.length, { timeout: 10_000 }).toBe(1);
    await sleep(2_500);
    expect(rebuilds).toHaveLength(1);
    expect([...shelf.members]).toEqual([]);
    expect(shelf.trouble).toMatch(/^desk: memory file of template k cannot be read: ENOENT.* \(1 in a row\)$/);
    await shelf.close();
    expect(rebuilds[0]).toMatchObject({ over: true });
    expect(rebuilds[0]?.signal.aborted).toBe(true);
    expect(await readdir(replicasFolder(area, 'test'))).toEqual([]);
  });
});

describe('a shelf that gets no room', () => {
  it('makes nothing, says why, and goes on once there is some', async () => {
    refusal = 'memory: 1 more would leave 0.8 GiB, floor is 1 GiB';
    shelf.aim({ hot: 2, frozen: 0 });
    expect([...shelf.members]).toEqual([]);
    expect([shelf.trouble, shelf.refused]).toEqual([refusal, refusal]);
    refusal = null;
    shelf.refill();
    expect(shelf.members.size).toBe(2);
    await expect.poll(() => rebuilds.length, { timeout: 10_000 }).toBe(1);
  });
});
