import type { Logger } from 'pino';
import type { QemuBinary } from '../qemu/binary.ts';
import type { Launcher } from '../qemu/launcher.ts';
import type { StorageArea } from '../storage/area.ts';
import type { Isolation } from './isolation.ts';
import type { TemplateUses } from './template-uses.ts';

/** What all replicas of one runner share. */
export interface Engine {
  readonly area: StorageArea;
  readonly runnerId: string;
  readonly qemu: QemuBinary;
  readonly launcher: Launcher;
  readonly accelerator: 'kvm' | 'tcg';
  /** Where run folders go: on a memory file system, its path short enough for sockets. */
  readonly runRoot: string;
  readonly isolation: Isolation;
  /** Templates that are not to be removed under it. */
  readonly uses: TemplateUses;
  /** Whether the kernel may merge the memory of clones (KSM). */
  readonly mergeMemory?: boolean;
  readonly log: Logger;
}
