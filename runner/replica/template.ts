import { randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Hardware } from '../qemu/arguments.ts';
import { type Picture, parsePpm } from '../qemu/picture.ts';
import { removeRunFolder } from '../qemu/run-folder.ts';
import { LockHeld, lockFile } from '../system/lock.ts';
import type { BuildProgress } from './build-progress.ts';
import type { Engine } from './engine.ts';
import { killFound, qemuProcesses } from './host-processes.ts';
import type { ImageFiles } from './image-files.ts';
import { readMemoryPages } from './memory-pages.ts';
import { runFolderOf, saveFolderOf } from './run-root.ts';
import { buildTemplate } from './template-build.ts';
import { imageHardware, templateKey } from './template-key.ts';
import { stampOf, TemplateRecord } from './template-record.ts';

/**
 * A booted, settled, stopped machine of an image, cloned many times. On disk, shared by all runners of the host:
 *
 *   <area>/templates/<key>/    ram state disk.raw golden.ppm template.json
 *   <area>/templates/.building-<key>-<uuid>/    one being made; renamed when whole, so one half-made is never found
 *
 * Its memory file is the memory of every clone for as long as it lives: it is never written to again.
 */
export interface Template {
  readonly key: string;
  readonly image: ImageFiles;
  readonly hardware: Hardware;
  readonly memoryPath: string;
  readonly statePath: string;
  readonly diskPath: string;
  /** The picture of a fresh clone. */
  readonly golden: Picture;
  readonly record: TemplateRecord;
}

/** The template's files are not what they were when it was made: clones of it cannot be trusted. */
export class TemplateDamaged extends Error {
  override readonly name = 'TemplateDamaged';
}

/** Another runner may be making the same template: about as long as that takes. */
const BUILD_LOCK_DEADLINE_MS = 20 * 60_000;

export const templatesFolder = (area: string): string => path.join(area, 'templates');
/** Held by whoever makes the template of that key. */
export const templateLock = (area: string, key: string): string => path.join(area, 'locks', `template-${key}`);

/**
 * Finds the template of an image, or makes it; on one host only one process makes a template, the others wait for it.
 * @param hardware the image's own unless given
 */
export async function ensureTemplate(
  engine: Engine,
  image: ImageFiles,
  progress: (progress: BuildProgress) => void,
  signal: AbortSignal,
  hardware: Hardware = imageHardware(image, engine.accelerator),
): Promise<Template> {
  const key = await templateKey(image, engine, hardware);
  await engine.uses.hold(key, signal);
  const found = await findTemplate(engine, image, hardware, key);
  if (found) return withPages(engine, found, signal);
  progress({ phase: 'waiting', fraction: 0, message: 'waiting for the right to make the template' });
  await using _lock = await lockFile(lockPath(engine, key), { waitMs: BUILD_LOCK_DEADLINE_MS, signal });
  const meanwhile = await findTemplate(engine, image, hardware, key);
  if (meanwhile) return withPages(engine, meanwhile, signal);
  const folder = templatesFolder(engine.area.path);
  await removeDrafts(engine, key);
  const uuid = randomUUID();
  const draft = path.join(folder, `.building-${key}-${uuid}`);
  await mkdir(draft, { recursive: true });
  try {
    await buildTemplate(engine, { key, image, hardware, folder: draft, uuid }, progress, signal);
    await rm(path.join(folder, key), { recursive: true, force: true });
    await rename(draft, path.join(folder, key));
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    throw error;
  }
  const made = await findTemplate(engine, image, hardware, key);
  if (!made) throw new TemplateDamaged(`template ${key} is not to be found right after it was made`);
  return made;
}

/** Another runner may have made it, or this one before the host's last boot. Without the pages it works as well, for more memory. */
async function withPages({ log }: Engine, template: Template, signal: AbortSignal): Promise<Template> {
  await readMemoryPages(template.memoryPath, signal).catch((error: unknown) => {
    signal.throwIfAborted();
    log.warn({ err: error, template: template.key }, "the template's memory was not read ahead");
  });
  return template;
}

/** Cheap: done for each clone. @throws TemplateDamaged when its memory file was touched since it was made */
export async function checkTemplate(template: Template): Promise<void> {
  const now = await stampOf(template.memoryPath).catch((error: Error) => {
    throw new TemplateDamaged(`memory file of template ${template.key} cannot be read: ${error.message}`);
  });
  const then = template.record.memory;
  for (const field of ['size', 'mtime_ns', 'ctime_ns'] as const) {
    if (now[field] !== then[field]) {
      throw new TemplateDamaged(
        `memory file of template ${template.key} was changed after it was made (${field} ${now[field]}, was ${then[field]})`,
      );
    }
  }
}

async function findTemplate(
  engine: Engine,
  image: ImageFiles,
  hardware: Hardware,
  key: string,
): Promise<Template | null> {
  const folder = path.join(templatesFolder(engine.area.path), key);
  try {
    const text = await readFile(path.join(folder, 'template.json'), 'utf8');
    const record = TemplateRecord.parse(JSON.parse(text));
    const template = {
      key,
      image,
      hardware,
      memoryPath: path.join(folder, 'ram'),
      statePath: path.join(folder, 'state'),
      diskPath: path.join(folder, 'disk.raw'),
      golden: parsePpm(await readFile(path.join(folder, 'golden.ppm'))),
      record,
    };
    await checkFiles(template);
    await checkTemplate(template);
    return template;
  } catch (error) {
    const absent = (error as NodeJS.ErrnoException).code === 'ENOENT';
    if (!absent) engine.log.warn({ err: error, template: key }, 'template is not whole, it will be made anew');
    return null;
  }
}

/** The files that only their makers write: looked at when a template is found, not with each clone. @throws TemplateDamaged */
async function checkFiles({ statePath, diskPath, image, record }: Template): Promise<void> {
  const [state, disk, source] = await Promise.all([statePath, diskPath, image.diskPath].map((file) => stat(file)));
  if (state?.size !== record.state_bytes) {
    throw new TemplateDamaged(`state file has ${state?.size} bytes, was made with ${record.state_bytes}`);
  }
  if (disk?.size !== source?.size) {
    throw new TemplateDamaged(`disk has ${disk?.size} bytes, that of its image ${source?.size}`);
  }
  if (disk && disk.mtimeMs > Date.parse(record.created_at)) {
    throw new TemplateDamaged(`disk was written to at ${disk.mtime.toISOString()}, after it was made`);
  }
}

/** What builders left behind when they were killed: of this template, whose lock the caller holds, and of others that nobody makes now. */
async function removeDrafts(engine: Engine, ownKey: string): Promise<void> {
  for (const draft of await readdir(templatesFolder(engine.area.path)).catch(() => [])) {
    const [, key, uuid] = /^\.building-([0-9a-f]+)-(.+)$/.exec(draft) ?? [];
    if (!key || !uuid) continue;
    if (key === ownKey) await removeDraft(engine, draft, uuid);
    else {
      await using lock = await lockFile(lockPath(engine, key), { waitMs: 0 }).catch(ifHeld);
      if (lock) await removeDraft(engine, draft, uuid);
    }
  }
}

async function removeDraft(engine: Engine, draft: string, uuid: string): Promise<void> {
  for (const found of await qemuProcesses()) if (found.uuid === uuid) await killFound(found);
  await removeRunFolder(runFolderOf(engine, uuid));
  await rm(saveFolderOf(engine, uuid), { recursive: true, force: true });
  await rm(path.join(templatesFolder(engine.area.path), draft), { recursive: true, force: true });
}

const lockPath = (engine: Engine, key: string): string => templateLock(engine.area.path, key);

function ifHeld(error: unknown): null {
  if (error instanceof LockHeld) return null;
  throw error;
}
