import { JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';
import { ServerFailed } from '../../infra/child-server.ts';
import { PackagesMissing } from '../../infra/packages.ts';
import { PortTaken } from '../../infra/ports.ts';
import { ToolMissing } from '../../infra/tools.ts';
import { ConsumerUnfit } from '../bus/consumers.ts';
import { StreamDiffers } from '../bus/ensure.ts';
import { BusRefused, BusUnreachable } from '../bus/errors.ts';
import { BusAway } from '../bus/stored.ts';
import { RunnerRefused } from '../host/refused.ts';
import { QemuMissing } from '../qemu/binary.ts';
import { MachineUserUnavailable } from '../qemu/machine-user.ts';
import { AreaUnavailable } from '../storage/area.ts';
import { ObjectDamaged, ObjectMissing, StorageAway, StorageFull, StorageRefused } from '../storage/errors.ts';
import { hasCapability, isRoot } from '../system/capabilities.ts';
import { LockHeld } from '../system/lock.ts';
import { CliError, cut, EXIT } from './error.ts';

/** Errors whose message says by itself what is wrong and what to do about it. */
const EXPLAINED = [
  ...[BusRefused, BusUnreachable, BusAway, StreamDiffers, ConsumerUnfit],
  ...[StorageRefused, StorageFull, ObjectMissing, ObjectDamaged, AreaUnavailable],
  ...[RunnerRefused, LockHeld, QemuMissing, MachineUserUnavailable],
  ...[PortTaken, ServerFailed, ToolMissing, PackagesMissing],
];

const ELSEWHERE = 'set GYMBUS_DATA and GYMBUS_CACHE to folders';
const IN_THE_WAY =
  'there is a file where a folder should be: move it, or set GYMBUS_DATA and GYMBUS_CACHE to other folders';
const NOT_ALLOWED = `run it as a user who may, as root for example, or ${ELSEWHERE} of your own`;

/** What a file system refuses, by its code or by call and code, and what to do about it. */
const FILE_REMEDIES: Readonly<Record<string, string>> = {
  EACCES: NOT_ALLOWED,
  EPERM: NOT_ALLOWED,
  EROFS: `${ELSEWHERE} that can be written to`,
  ENAMETOOLONG: `${ELSEWHERE} with shorter names`,
  ELOOP: `${ELSEWHERE} that no link leads back to`,
  ENOTDIR: IN_THE_WAY,
  'mkdir EEXIST': IN_THE_WAY,
  'mkdir ENOENT': `no folder can be made there: ${ELSEWHERE} elsewhere`,
  ENOSPC: `free some disk, or ${ELSEWHERE} on a larger one`,
  EDQUOT: `free some of your quota, or ${ELSEWHERE} elsewhere`,
};

/** What a user may do to files of others. */
export interface FileRights {
  root: boolean;
  /** The capability by which root may. */
  override: boolean;
}

const ownRights = (): FileRights => ({ root: isRoot(), override: hasCapability('CAP_DAC_OVERRIDE') });

/** Root is refused what others may not, too: by what it lacks, or by what is above it. */
function remedyOf(code: string, remedy: string, { root, override }: FileRights): string {
  if (!root || (code !== 'EACCES' && code !== 'EPERM')) return remedy;
  const why = override
    ? 'root is refused it by the file system (immutable, or a share that squashes root), the container or a security module'
    : 'root has no CAP_DAC_OVERRIDE here, as in a container that drops it, and this belongs to another user';
  return `${why}; ${ELSEWHERE} that it may write to`;
}

function fileProblem(error: unknown, rights: () => FileRights): string | null {
  const { code = '', path: file, syscall } = error as NodeJS.ErrnoException;
  const remedy = FILE_REMEDIES[`${syscall} ${code}`] ?? FILE_REMEDIES[code];
  if (file === undefined || remedy === undefined) return null;
  return `cannot ${syscall} ${cut(file)} (${code}): ${remedyOf(code, remedy, rights())}`;
}

/** What a person is told of an error, without a stack; null for what nobody foresaw, which is a fault of gymbus. */
export function asCliError(error: unknown, rights: () => FileRights = ownRights): CliError | null {
  if (error instanceof CliError) return error;
  // A sleep or a child process that was cut short says so, and why in its cause.
  if (error instanceof Error && error.name === 'AbortError' && error.cause instanceof CliError) return error.cause;
  if (error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound) {
    return new CliError(
      "the bus has no streams of gymbus's yet: the first runner makes them, or `gymbus streams ensure` (GYMBUS_PREFIX names others)",
      EXIT.no,
      { cause: error },
    );
  }
  if (error instanceof StorageAway) {
    return new CliError(`${error.message}; start S3, or set AWS_ENDPOINT_URL to where it runs`, EXIT.no, {
      cause: error,
    });
  }
  const file = fileProblem(error, rights);
  if (file !== null) return new CliError(file, EXIT.no, { cause: error });
  const explained = EXPLAINED.some((type) => error instanceof type);
  return explained ? new CliError((error as Error).message, EXIT.no, { cause: error }) : null;
}
