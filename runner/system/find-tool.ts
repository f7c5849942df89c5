import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import path from 'node:path';

/** Folders of administration tools, which a plain user's PATH lacks. */
const ADMIN_FOLDERS = ['/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** Where programs are looked for: PATH, then the administrators' folders. */
export function toolFolders(): string[] {
  return [...new Set([...(process.env.PATH ?? '').split(path.delimiter), ...ADMIN_FOLDERS])].filter(Boolean);
}

/** The program's path; null when there is none of that name that may be run. */
export async function findTool(name: string): Promise<string | null> {
  for (const folder of toolFolders()) {
    const file = path.join(folder, name);
    const executable = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (executable) return file;
  }
  return null;
}
