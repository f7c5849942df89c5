import { SetupError } from '../../functions/contract.ts';
import { LeaseLost } from '../bus/lease.ts';
import { ClaimFailed, ReplicaLost } from '../replica/contract.ts';
import { ObjectDamaged, ObjectMissing, StorageAway, StorageFull, StorageRefused } from '../storage/errors.ts';
import { AttemptFailed } from './failure.ts';
import { causesOf, PartFailed } from './part-failed.ts';

/** The runner is told to stop, and the time for jobs under way is over. */
export class Drained extends Error {
  override readonly name = 'Drained';
}

/** The batch was cancelled while the job was played. */
export class Cancelled extends Error {
  override readonly name = 'Cancelled';
}

/**
 * Gives an error of playing a job its class. The innermost cause with a meaning decides, for a part that failed because
 * its machine died, or because S3 did not hand out an input, is not that part's fault. What nobody foresaw is this
 * host's: it costs the job nothing, and the bound on deliveries ends it.
 */
export function classify(error: unknown): AttemptFailed {
  const message = error instanceof Error ? error.message : String(error);
  const causes = [...causesOf(error)];
  const inSetup = causes.some((cause) => cause instanceof SetupError);
  for (const cause of causes.reverse()) {
    if (cause instanceof AttemptFailed) return cause;
    if (cause instanceof Cancelled) return new AttemptFailed('cancelled', cause.message, { cause: error });
    if (cause instanceof LeaseLost || cause instanceof Drained || cause instanceof ClaimFailed) {
      return new AttemptFailed('host', cause.message, { cause: error });
    }
    if (cause instanceof StorageFull || isOfHost(cause)) return new AttemptFailed('host', message, { cause: error });
    if (cause instanceof StorageAway || cause instanceof StorageRefused) {
      return new AttemptFailed('storage', message, { cause: error });
    }
    if (cause instanceof ObjectDamaged || cause instanceof ObjectMissing) {
      // A file that the job names and nobody put there, or a larger one than may be read, is the job's fault.
      return new AttemptFailed(inSetup ? 'setup' : 'storage', message, { cause: error });
    }
    if (cause instanceof ReplicaLost) {
      return cause.byHost
        ? new AttemptFailed('host', message, { cause: error })
        : // What was found in a guest is its own fault: only a job whose machines die is poison.
          new AttemptFailed('guest', message, { cause: error, replicaLost: !cause.found });
    }
  }
  for (const cause of causesOf(error)) {
    if (cause instanceof PartFailed) return new AttemptFailed(cause.part, message, { cause: error });
  }
  return new AttemptFailed('host', `unexpected: ${message}`, { cause: error });
}

/** A system call that this machine could not serve; which part of an episode made it says nothing about that part. */
function isOfHost(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code, syscall } = error as NodeJS.ErrnoException;
  return syscall !== undefined && HOST_CODES.has(code ?? '');
}

const HOST_CODES = new Set(['EIO', 'EROFS', 'ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE', 'ENOMEM']);
