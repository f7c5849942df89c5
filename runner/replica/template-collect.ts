import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { LockHeld, lockFile } from '../system/lock.ts';
import type { Engine } from './engine.ts';
import { type Template, templatesFolder } from './template.ts';
import { readRecord } from './template-record.ts';
import { templateUseFile } from './template-uses.ts';

/** One of an image that is not served here any more may be wanted again: making it takes a minute, keeping it a gigabyte. */
const UNUSED_MS = 7 * 24 * 3_600_000;

/**
 * Removes templates that nobody will clone again: at once those of an older build of an image, or of another QEMU, of which a newer one is
 * there; after a week of disuse all others. Never one that a process of this host uses.
 * @param current what this runner serves @returns keys of what was removed
 */
export async function collectTemplates(
  { area, log }: Pick<Engine, 'area' | 'log'>,
  current: readonly Template[],
  nowMs = Date.now(),
): Promise<string[]> {
  const folder = templatesFolder(area.path);
  const names = await readdir(folder).catch((): string[] => []);
  const removed: string[] = [];
  for (const key of names) {
    // Hidden ones are being made.
    if (key.startsWith('.') || current.some((template) => template.key === key)) continue;
    const why = await reasonToRemove(area.path, key, current, nowMs);
    if (why === null) continue;
    await using lock = await lockFile(templateUseFile(area.path, key), { waitMs: 0 }).catch(ifHeld);
    if (lock === null) continue;
    await rm(path.join(folder, key), { recursive: true, force: true });
    removed.push(key);
    log.info({ template: key, why }, 'template removed');
  }
  return removed;
}

/** @returns null for one to keep */
async function reasonToRemove(
  area: string,
  key: string,
  current: readonly Template[],
  nowMs: number,
): Promise<string | null> {
  const folder = path.join(templatesFolder(area), key);
  const record = await readRecord(folder);
  const successor = current.find((template) => template.image.name === record?.image);
  if (record && successor) {
    const { image_digest, qemu_version, accelerator } = successor.record;
    if (record.accelerator === accelerator && record.image_digest !== image_digest)
      return 'of an older build of its image';
    if (record.accelerator === accelerator && record.qemu_version !== qemu_version) return 'of another QEMU';
  }
  const times = await Promise.all([folder, templateUseFile(area, key)].map((file) => stat(file).catch(() => null)));
  const usedMs = Math.max(...times.map((found) => found?.mtimeMs ?? 0));
  return nowMs - usedMs > UNUSED_MS ? 'not used for a week' : null;
}

function ifHeld(error: unknown): null {
  if (error instanceof LockHeld) return null;
  throw error;
}
