import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Launcher } from '../../runner/qemu/launcher.ts';
import { writePpm } from '../../runner/qemu/picture.ts';
import type { Engine } from '../../runner/replica/engine.ts';
import { knownImages } from '../../runner/replica/host-forecast.ts';
import type { ImageFiles } from '../../runner/replica/image-files.ts';
import { emptyProfile } from '../../runner/replica/profile.ts';
import { addToProfile } from '../../runner/replica/profile-file.ts';
import { ensureTemplate, type Template, templatesFolder } from '../../runner/replica/template.ts';
import { collectTemplates } from '../../runner/replica/template-collect.ts';
import { imageHardware, templateKey } from '../../runner/replica/template-key.ts';
import { stampOf, type TemplateRecord } from '../../runner/replica/template-record.ts';
import { TemplateUses, templateUseFile } from '../../runner/replica/template-uses.ts';
import { StorageFull } from '../../runner/storage/errors.ts';
import { lockFile } from '../../runner/system/lock.ts';

const GIB = 2 ** 30;
let data: string;
let area: string;
let freeBytes: number;
let image: ImageFiles;
let engine: Engine;

beforeEach(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'gymbus-template-'));
  area = path.join(data, 'area');
  await mkdir(area);
  freeBytes = 100 * GIB;
  image = {
    name: 'desk',
    digest: 'd'.repeat(64),
    diskPath: path.join(area, 'image.raw'),
    kernelPath: path.join(area, 'none'),
    initrdPath: path.join(area, 'none'),
    manifest: {
      ...{ resolution: { width: 2, height: 2 }, memory_mib: 1024, vcpus: 1, cmdline: '', user: 'user', warmup: [] },
      ...{ readiness: { windows: [], processes: [], equal_pictures_ms: 1, timeout_s: 1 }, volatile_regions: [] },
      network: { hosts: [] },
    },
  };
  await writeFile(image.diskPath, 'disk');
  engine = {
    area: {
      path: area,
      ...{ description: '', cloning: 'reflink' },
      freeBytes: async () => freeBytes,
      [Symbol.asyncDispose]: async () => undefined,
    },
    ...{ runnerId: 'test', accelerator: 'tcg', runRoot: path.join(area, 'run'), log: pino({ level: 'silent' }) },
    uses: new TemplateUses(area),
    isolation: { user: null, cgroups: null, description: { user: '', limits: '' } },
    // Nothing boots here: where a template is not found, making it ends at this.
    qemu: { path: '/no/such/qemu', version: '0', digest: 'none' },
    launcher: new Launcher(),
  };
});
afterEach(async () => {
  await engine.launcher[Symbol.asyncDispose]();
  await engine.uses[Symbol.asyncDispose]();
  await rm(data, { recursive: true });
});

/** A template as a build leaves it. @returns its folder */
async function place(): Promise<string> {
  const key = await templateKey(image, engine, imageHardware(image, 'tcg'));
  const folder = path.join(templatesFolder(area), key);
  await mkdir(folder, { recursive: true });
  for (const name of ['ram', 'state', 'disk.raw']) await writeFile(path.join(folder, name), 'disk');
  const golden = writePpm({ width: 2, height: 2, pixels: Buffer.alloc(12, 200) });
  await writeFile(path.join(folder, 'golden.ppm'), golden);
  const record: TemplateRecord = {
    ...{ schema: 'gymbus.template.v1', key, image: image.name, image_digest: image.digest, qemu_version: '0' },
    ...{ accelerator: 'tcg', machine_id: 'm', boot_id: 'b', hostname: 'h', boot_ms: 1, build_ms: 1 },
    ...{ memory: await stampOf(path.join(folder, 'ram')), state_bytes: 4 },
    created_at: new Date(Date.now() + 1_000).toISOString(),
  };
  await writeFile(path.join(folder, 'template.json'), JSON.stringify(record));
  return folder;
}

const ensure = (): Promise<Template> => ensureTemplate(engine, image, () => undefined, new AbortController().signal);

describe('a finished template', () => {
  it('is found', async () => {
    const folder = await place();
    expect((await ensure()).diskPath).toBe(path.join(folder, 'disk.raw'));
  });

  it.each<[string, (folder: string) => Promise<void>]>([
    ['has no record', (folder) => rm(path.join(folder, 'template.json'))],
    ['has half a record', (folder) => truncate(path.join(folder, 'template.json'), 20)],
    ['has half a picture', (folder) => truncate(path.join(folder, 'golden.ppm'), 20)],
    ['lost its device state', (folder) => truncate(path.join(folder, 'state'), 0)],
    ['lost its disk', (folder) => rm(path.join(folder, 'disk.raw'))],
    ['has half a disk', (folder) => truncate(path.join(folder, 'disk.raw'), 2)],
    ['has a disk that was written to', (folder) => utimes(path.join(folder, 'disk.raw'), 4e9, 4e9)],
    ['lost its memory', (folder) => rm(path.join(folder, 'ram'))],
    ['has memory that was written to', (folder) => appendFile(path.join(folder, 'ram'), 'x')],
  ])('is made anew when it %s', async (_, damage) => {
    await damage(await place());
    await expect(ensure()).rejects.toThrow('qemu did not start: qemu exited with code 2: launcher: cannot start');
    expect((await readdir(templatesFolder(area))).filter((name) => name.startsWith('.building-'))).toEqual([]);
    expect(await readdir(engine.runRoot)).toEqual([]);
  });
});

describe('making a template', () => {
  it('removes what killed builders left, of other templates too, and nothing of one that is being made', async () => {
    const [dead, alive] = [`.building-${'a'.repeat(32)}-dead`, `.building-${'b'.repeat(32)}-alive`];
    for (const name of [dead, alive]) await mkdir(path.join(templatesFolder(area), name), { recursive: true });
    const ofRun = ['alive', 'alive.save', 'dead', 'dead.save'];
    for (const name of ofRun) await mkdir(path.join(engine.runRoot, name), { recursive: true });
    await writeFile(path.join(engine.runRoot, 'dead.save', 'save.sock'), '');
    await using _maker = await lockFile(path.join(area, 'locks', `template-${'b'.repeat(32)}`), { waitMs: 0 });
    await expect(ensure()).rejects.toThrow('qemu did not start');
    expect(await readdir(templatesFolder(area))).toEqual([alive]);
    expect(await readdir(engine.runRoot)).toEqual(['alive', 'alive.save']);
  });

  it('does not begin without room for it', async () => {
    freeBytes = GIB;
    await expect(ensure()).rejects.toBeInstanceOf(StorageFull);
    await expect(ensure()).rejects.toThrow(/^the template of desk may need 1\.1 GiB in .*, and 1\.0 GiB are free: /);
    expect(await readdir(templatesFolder(area))).toEqual([]);
  });
});

describe('what is known of an image', () => {
  it('is its newest whole template’s: neither one cut short by a power failure nor one being made keeps it from being known', async () => {
    const folder = await place();
    const key = path.basename(folder);
    const start = emptyProfile({ image: 'desk', image_digest: image.digest, accelerator: 'tcg', memory_mib: 1_024 });
    const profile = await addToProfile(area, key, 'test', start, {});
    const text = await readFile(path.join(folder, 'template.json'), 'utf8');
    const newer = JSON.stringify({ ...JSON.parse(text), key: '0b', created_at: '9999-01-01T00:00:00.000Z' });
    for (const [name, record] of Object.entries({ '0a': text.slice(0, 20), '.building-0b-x': newer })) {
      await mkdir(path.join(templatesFolder(area), name));
      await writeFile(path.join(templatesFolder(area), name, 'template.json'), record);
    }
    const [known] = await knownImages(area, [{ name: 'desk', digest: image.digest, memoryMib: 1_024 }], 'tcg');
    expect(known).toMatchObject({ template: key, profile });
  });
});

describe('templates that nobody needs', () => {
  const week = 7 * 24 * 3_600_000;
  /** Another template beside the current one. @returns its key */
  async function another(key: string, record: Partial<TemplateRecord>): Promise<string> {
    const folder = path.join(templatesFolder(area), key);
    await mkdir(folder, { recursive: true });
    const { record: own } = await ensure();
    await writeFile(path.join(folder, 'template.json'), JSON.stringify({ ...own, key, ...record }));
    return key;
  }
  const collect = async (nowMs?: number): Promise<string[]> => collectTemplates(engine, [await ensure()], nowMs);

  it('are removed when a newer build of their image, or another QEMU, has one', async () => {
    await place();
    const old = [
      await another('0a', { image_digest: 'e'.repeat(64) }),
      await another('0b', { qemu_version: '-1' }),
      await another('0c', { image: 'elsewhere', image_digest: 'f'.repeat(64) }),
      // The same in all of that: of another machine that somebody wants, e.g. with more memory.
      await another('0d', {}),
    ];
    expect((await collect()).sort()).toEqual(old.slice(0, 2));
    expect(await readdir(templatesFolder(area))).toEqual(expect.arrayContaining(old.slice(2)));
    expect(await ensure()).toMatchObject({ key: expect.any(String) });
  });

  it('are removed after a week without use, whatever they are of', async () => {
    await place();
    const unreadable = path.join(templatesFolder(area), '0e');
    await mkdir(unreadable);
    const other = await another('0c', { image: 'elsewhere' });
    expect(await collect()).toEqual([]);
    const used = new TemplateUses(area);
    await used.hold(other, new AbortController().signal);
    await used[Symbol.asyncDispose]();
    await utimes(unreadable, 0, 0);
    await utimes(path.join(templatesFolder(area), other), 0, 0);
    expect(await collect()).toEqual(['0e']);
    expect(await collect(Date.now() + week + 60_000)).toEqual([other]);
  });

  it('stay while a process uses them, and those that are being made', async () => {
    await place();
    const old = await another('0a', { image_digest: 'e'.repeat(64) });
    await mkdir(path.join(templatesFolder(area), '.building-0f-x'));
    await using others = new TemplateUses(area);
    await others.hold(old, new AbortController().signal);
    expect(await collect(Date.now() + 2 * week)).toEqual([]);
    await others[Symbol.asyncDispose]();
    expect(await collect()).toEqual([old]);
    expect(await readdir(path.dirname(templateUseFile(area, old)))).toContain(old);
  });
});
