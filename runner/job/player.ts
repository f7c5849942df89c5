import type { Logger } from 'pino';
import type { DownloadSettings } from '../../functions/contract.ts';
import type { Functions } from '../../functions/registry.ts';
import type { EventKind, JobAddress } from '../../schemas/index.ts';
import type { BatchFlags } from '../bus/batch-flags.ts';
import type { Bus } from '../bus/index.ts';
import type { RecordingPlace } from '../storage/recorder.ts';
import type { LookSettings } from './observe.ts';

/** What every delivery of a runner shares. */
export interface Player {
  runner: string;
  bus: Bus;
  place: RecordingPlace;
  functions: Functions;
  look: LookSettings;
  downloads: DownloadSettings;
  /** Hosts that the policy of an image lets its jobs ask for. */
  allowedHosts(image: string): readonly string[];
  /** Of gymbus, QEMU, the kernel, ...: written into every manifest. */
  versions: Record<string, string>;
  log: Logger;
  flags: BatchFlags;
  emit(
    kind: EventKind,
    address: JobAddress,
    attempt: string | null,
    data: Record<string, string | number | boolean | null>,
  ): void;
}
