import { z } from 'zod';
import { GuestCommand, ImageName, NetworkPolicy, Readiness, Rectangle } from './recipe.ts';

/** `image.json`: what a finished image is, for whoever boots it. Written last; an image without it does not exist. */
export const ImageManifest = z.object({
  schema: z.literal('gymbus.image.v1'),
  name: ImageName,
  digest: z.string().regex(/^[0-9a-f]{64}$/),
  description: z.string(),
  suite: z.string(),
  created_at: z.iso.datetime(),
  resolution: z.object({ width: z.int(), height: z.int() }),
  /** The display adapter's memory; with less, the guest falls back to a smaller screen. */
  video_memory_mib: z.int(),
  memory_mib: z.int(),
  vcpus: z.int(),
  cmdline: z.string(),
  user: z.string(),
  readiness: Readiness,
  warmup: z.array(GuestCommand),
  volatile_regions: z.array(Rectangle),
  /** Images from before there were policies allow none. */
  network: NetworkPolicy.default({ hosts: [] }),
  versions: z.record(z.string(), z.string()),
  disk_bytes: z.int(),
  /** Blocks the disk really takes; the rest of `disk_bytes` is holes. */
  disk_allocated_bytes: z.int(),
  build_s: z.number(),
});
export type ImageManifest = z.infer<typeof ImageManifest>;
