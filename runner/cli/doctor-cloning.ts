import { rm, writeFile } from 'node:fs/promises';
import type { StorageArea } from '../storage/area.ts';
import { overlay, reflink } from '../storage/clone.ts';
import type { Finding } from './doctor-checks.ts';

/** @throws when disks cannot be cloned in this area */
export async function examineCloning(area: Pick<StorageArea, 'path' | 'cloning' | 'description'>): Promise<Finding> {
  const milliseconds = await timeCloning(area.path, area.cloning === 'overlay' ? overlay : reflink);
  const found = `a clone took ${milliseconds} ms; ${area.description}`;
  if (area.cloning === 'reflink') return { what: 'reflink', verdict: 'fine', found };
  const remedy =
    'everything works; a clone is quicker where blocks can be shared: with GYMBUS_DATA on XFS or btrfs, or where a runner may mount';
  return { what: 'reflink', verdict: 'note', found, remedy };
}

async function timeCloning(folder: string, clone: typeof reflink): Promise<number> {
  const source = `${folder}/.doctor-${process.pid}`;
  try {
    await writeFile(source, Buffer.alloc(1 << 20, 1));
    const startedAt = performance.now();
    await clone(source, `${source}-clone`);
    return Math.round(performance.now() - startedAt);
  } finally {
    await rm(source, { force: true });
    await rm(`${source}-clone`, { force: true });
  }
}
