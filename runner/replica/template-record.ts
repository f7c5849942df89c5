import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';

const Stamp = z.object({ size: z.number(), mtime_ns: z.string(), ctime_ns: z.string() });

/** `template.json`, written last. */
export const TemplateRecord = z.object({
  schema: z.literal('gymbus.template.v1'),
  key: z.string(),
  image: z.string(),
  image_digest: z.string(),
  qemu_version: z.string(),
  accelerator: z.enum(['kvm', 'tcg']),
  /** What the template's own guest was; a clone must differ from it. */
  machine_id: z.string(),
  boot_id: z.string(),
  /** Stays the same in all clones: prompts and window titles show it, and equal episodes must give equal pictures. */
  hostname: z.string(),
  /** Of the memory file, when it was finished: a change kills the template. */
  memory: Stamp,
  state_bytes: z.number(),
  /** From power-on until the desktop stood still: what a reset by reboot costs. */
  boot_ms: z.number(),
  build_ms: z.number(),
  created_at: z.string(),
});
export type TemplateRecord = z.infer<typeof TemplateRecord>;

/** @param folder of a template @returns null for none, and for what another version or a power failure left */
export async function readRecord(folder: string): Promise<TemplateRecord | null> {
  try {
    return TemplateRecord.parse(JSON.parse(await readFile(path.join(folder, 'template.json'), 'utf8')));
  } catch {
    return null;
  }
}

/** Size and times of a memory file, in nanoseconds as decimal text. */
export async function stampOf(file: string): Promise<z.infer<typeof Stamp>> {
  const { size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
  return { size: Number(size), mtime_ns: String(mtimeNs), ctime_ns: String(ctimeNs) };
}
