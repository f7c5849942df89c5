import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { LockHeld, lockFile } from '../system/lock.ts';
import { templateLock, templatesFolder } from './template.ts';

/** Which images the templates of an area were made of. */
export interface TemplateImages {
  /** Whole digests. */
  digests: Set<string>;
  /** A template is being made: of an image that is not known yet. */
  making: boolean;
  /** Folders of templates that do not say what they were made of. */
  unreadable: string[];
}

/** @param area of a data directory, mounted */
export async function templateImages(area: string): Promise<TemplateImages> {
  const found: TemplateImages = { digests: new Set(), making: false, unreadable: [] };
  const folder = templatesFolder(area);
  for (const name of await readdir(folder).catch(() => [])) {
    const [, key] = /^\.building-([0-9a-f]+)-/.exec(name) ?? [];
    if (key) {
      found.making ||= await isHeld(templateLock(area, key));
      continue;
    }
    const at = path.join(folder, name);
    const digest = await imageOf(path.join(at, 'template.json'));
    if (digest) found.digests.add(digest);
    else found.unreadable.push(at);
  }
  return found;
}

async function imageOf(file: string): Promise<string | null> {
  try {
    const { image_digest } = JSON.parse(await readFile(file, 'utf8'));
    return typeof image_digest === 'string' ? image_digest : null;
  } catch {
    return null;
  }
}

async function isHeld(file: string): Promise<boolean> {
  try {
    await using _lock = await lockFile(file, { waitMs: 0 });
    return false;
  } catch (error) {
    if (error instanceof LockHeld) return true;
    throw error;
  }
}
