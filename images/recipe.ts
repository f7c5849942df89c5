import { z } from 'zod';
import { HostPattern } from '../schemas/index.ts';

/** A rectangle of the screen in pixels, origin top left. */
export const Rectangle = z.strictObject({
  name: z.string().min(1),
  x: z.int().nonnegative(),
  y: z.int().nonnegative(),
  width: z.int().positive(),
  height: z.int().positive(),
});
export type Rectangle = z.infer<typeof Rectangle>;

/** A command for the guest's helper (its `exec`): anything but exit 0 within `timeout_s` fails the template. */
export const GuestCommand = z.strictObject({
  argv: z.array(z.string()).min(1),
  user: z.enum(['user', 'root']).default('user'),
  timeout_s: z.number().positive(),
});
export type GuestCommand = z.infer<typeof GuestCommand>;

/**
 * When a booted guest is a settled desktop: its X server answers, each of `windows` exists (class and EWMH type as the
 * helper's `desktop` lists them), each of `processes` runs, and pictures `equal_pictures_ms` apart are the same.
 */
export const Readiness = z.strictObject({
  windows: z.array(z.strictObject({ class: z.string(), type: z.string() })),
  processes: z.array(z.string()),
  equal_pictures_ms: z.int().positive(),
  timeout_s: z.number().positive(),
});
export type Readiness = z.infer<typeof Readiness>;

/** Hosts that jobs of an image may ask for. A job reaches those that it asks for, and no others. */
export const NetworkPolicy = z.strictObject({ hosts: z.array(HostPattern).max(256) });

const absolutePath = z.string().startsWith('/');

/** Image names are tokens of bus subjects and parts of object keys. */
export const ImageName = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, 'an image name matches [A-Za-z0-9_-]{1,64}');

/** Everything a guest image is made of. Two recipes that differ in anything build two images. */
export const Recipe = z.strictObject({
  name: ImageName,
  description: z.string(),
  suite: z.literal('bookworm'),
  packages: z.array(z.string().regex(/^[a-z0-9][a-z0-9+.-]+$/, 'not a Debian package name')).min(1),
  /** Pure-Python packages that Debian does not carry: name to exact version. Their dependencies are named too. */
  python_packages: z.record(z.string(), z.string().regex(/^[0-9][0-9A-Za-z.]*$/, 'pin an exact version')),
  /** What packages bring and the guest does not need: dpkg's path-exclude patterns, then path-include ones. */
  exclude_paths: z.array(absolutePath),
  include_paths: z.array(absolutePath),
  /** Kernel modules (with what they depend on) that the initrd loads to reach the root file system. */
  initrd_modules: z.array(z.string()).min(1),
  /** Trees laid over the root, in order: absolute paths on the build host. */
  files: z.array(absolutePath),
  /** Directories made in the guest; those under the user's home are the user's. */
  directories: z.array(absolutePath),
  user: z.strictObject({
    name: z.string().regex(/^[a-z][a-z0-9_-]*$/),
    uid: z.int().min(1000),
    password: z.string().min(1),
    groups: z.array(z.string()),
  }),
  time_zone: z.string(),
  enabled_units: z.array(z.string()),
  /** systemd units and generators (`generator:NAME`) that never run. */
  masked_units: z.array(z.string()),
  /** Commands run in the finished root, as root, without a shell. */
  finish: z.array(z.array(z.string()).min(1)),
  memory_mib: z.int().min(128),
  vcpus: z.int().positive(),
  resolution: z.strictObject({ width: z.int().positive(), height: z.int().positive() }),
  /** The screen driver offers only modes that fit twice: 1280x720 needs 8 MiB, and with 4 becomes 800x600. */
  video_memory_mib: z.int().positive(),
  disk_mib: z.int().min(512),
  kernel_command_line: z.string(),
  readiness: Readiness,
  /** Run in order once the desktop is ready, before it is saved: what they read stays in the guest's page cache. */
  warmup: z.array(GuestCommand),
  /** Screen areas that change by themselves; masked when pictures are compared. */
  volatile_regions: z.array(Rectangle),
  network: NetworkPolicy.default({ hosts: [] }),
  /** Packages whose versions are worth a line in `image.json`. */
  main_packages: z.array(z.string()),
});
export type Recipe = z.infer<typeof Recipe>;
