import { chown, mkdir, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { BuildProgress } from '../../runner/replica/build-progress.ts';
import { park } from '../../runner/replica/parking.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import {
  checkTemplate,
  ensureTemplate,
  type Template,
  TemplateDamaged,
  templatesFolder,
} from '../../runner/replica/template.ts';
import { imageHardware, templateKey } from '../../runner/replica/template-key.ts';
import { stampOf } from '../../runner/replica/template-record.ts';
import { reflink } from '../../runner/storage/clone.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-template');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('a template', () => {
  it('is found again, not made again', async () => {
    const phases: string[] = [];
    const again = await ensureTemplate(vm.engine, vm.image, ({ phase }) => phases.push(phase), never);
    expect(phases).toEqual([]);
    expect(again.record).toEqual(vm.template.record);
  });

  it('has a key that changes with everything it depends on', async () => {
    const { engine, image } = vm;
    const hardware = imageHardware(image, engine.accelerator);
    const { manifest } = image;
    const another = { name: 'another', uid: 1, gid: 12_345, groups: [] };
    const keys = await Promise.all([
      templateKey(image, engine, hardware),
      templateKey({ ...image, digest: 'other' }, engine, hardware),
      templateKey({ ...image, manifest: { ...manifest, cmdline: `${manifest.cmdline} quiet` } }, engine, hardware),
      templateKey({ ...image, manifest: { ...manifest, warmup: [] } }, engine, hardware),
      templateKey(image, { ...engine, qemu: { ...engine.qemu, digest: 'other' } }, hardware),
      templateKey(image, { ...engine, isolation: { ...engine.isolation, user: another } }, hardware),
      templateKey(image, engine, { ...hardware, memoryMib: 2048 }),
      templateKey(image, engine, { ...hardware, vcpus: 2 }),
      templateKey(image, engine, { ...hardware, screen: { width: 1024, height: 768 } }),
      templateKey(image, engine, { ...hardware, accelerator: 'kvm' }),
      templateKey(image, engine, { ...hardware, vmGenerationId: false }),
    ]);
    expect(keys[0]).toBe(vm.template.key);
    expect(new Set(keys).size).toBe(keys.length);
  });

  it('notices a touch of its memory file before the next clone, and is no longer found', async () => {
    const { mtime, atime } = await stat(vm.template.memoryPath);
    const copy: Template = { ...vm.template, memoryPath: path.join(vm.area.path, 'touched') };
    await writeFile(copy.memoryPath, 'x');
    await expect(checkTemplate(copy)).rejects.toBeInstanceOf(TemplateDamaged);
    await rm(copy.memoryPath);
    await expect(checkTemplate(copy)).rejects.toThrow('cannot be read');
    await checkTemplate(vm.template);
    expect([mtime, atime]).toHaveLength(2);
  });
});

describe('a replica that waits', () => {
  it('is not handed out when the memory of its template was touched meanwhile', async () => {
    const memoryPath = path.join(vm.area.path, 'memory-to-touch');
    await reflink(vm.template.memoryPath, memoryPath);
    const { uid, gid } = await stat(vm.template.memoryPath);
    await chown(memoryPath, uid, gid);
    try {
      const record = { ...vm.template.record, memory: await stampOf(memoryPath) };
      const replica = new VirtualReplica(vm.engine, { ...vm.template, memoryPath, record });
      await replica.prepare();
      await replica.thaw();
      await utimes(memoryPath, 1, 1);
      await expect(replica.lease(never)).rejects.toBeInstanceOf(TemplateDamaged);
      expect(replica.phase).toBe('failed');
      await replica.discard();
    } finally {
      await rm(memoryPath);
    }
  });
});

/** One that is made here each time: without the device that tells a guest of its cloning. Two ask for it at once. */
describe('a pointer that does not go where it is sent', () => {
  it('makes no template', async () => {
    const other = await vm.replica('leased');
    await park(other.machine, never);
    await guestShell(other, 'DISPLAY=:0 xrandr --size 1024x768');
    await expect(park(other.machine, never)).rejects.toThrow(
      /^the pointer was sent to \(896, 432\) and is at \(\d+, \d+\): .* no click would hit its target$/,
    );
    await other.discard();
  });
});

describe('a template without vmgenid', () => {
  let made: Template;

  it('is made once, by one of two that want it, over the remains of one that was killed', async () => {
    const { engine } = vm;
    const image = { ...vm.image, manifest: { ...vm.image.manifest, warmup: [] } };
    const hardware = { ...imageHardware(image, engine.accelerator), vmGenerationId: false };
    const key = await templateKey(image, engine, hardware);
    const folder = templatesFolder(vm.area.path);
    await rm(path.join(folder, key), { recursive: true, force: true });
    const remains = path.join(folder, `.building-${key}-11111111-2222-4333-8444-555555555555`);
    await mkdir(remains);
    await writeFile(path.join(remains, 'ram'), 'half of it');

    const phases: string[][] = [[], []];
    const both = await Promise.all(
      phases.map((list) => {
        const note = ({ phase }: BuildProgress): void => void (list.at(-1) === phase || list.push(phase));
        return ensureTemplate(engine, image, note, never, hardware);
      }),
    );
    made = both[0] as Template;
    expect(both[1]?.record).toEqual(made.record);
    expect(phases.filter((list) => list.includes('booting'))).toHaveLength(1);
    expect(phases.find((list) => list.includes('booting'))).toEqual([
      ...['waiting', 'copying', 'booting', 'desktop', 'settling', 'saving', 'done'],
    ]);
    expect((await readdir(folder)).filter((name) => name.startsWith(`.building-${key}`))).toEqual([]);
  }, 600_000);

  it('gives clones that fail the gate by name', async () => {
    const replica = new VirtualReplica(vm.engine, made);
    await replica.prepare();
    await expect(replica.thaw()).rejects.toMatchObject({ name: 'GateFailed', check: 'entropy' });
    expect(replica.phase).toBe('failed');
    expect(replica.cause).toContain('vmgenid');
    await replica.discard();
  });

  it('is made anew when its files were damaged', async () => {
    await utimes(made.memoryPath, 1, 1);
    await expect(checkTemplate(made)).rejects.toThrow(/changed after it was made \(mtime_ns/);
    const replica = new VirtualReplica(vm.engine, made);
    await expect(replica.prepare()).rejects.toBeInstanceOf(TemplateDamaged);
    await replica.discard();
    await rm(path.dirname(made.memoryPath), { recursive: true });
  });
});
