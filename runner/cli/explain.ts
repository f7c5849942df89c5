import { JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';
import { ServerFailed } from '../../infra/child-server.ts';
import { LockHeld as StackHeld } from '../../infra/lock.ts';
import { PackagesMissing } from '../../infra/packages.ts';
import { PortTaken } from '../../infra/ports.ts';
import { ToolMissing } from '../../infra/tools.ts';
import { BusRefused, BusUnreachable } from '../bus/connection.ts';
import { ConsumerUnfit } from '../bus/consumers.ts';
import { StreamDiffers } from '../bus/ensure.ts';
import { BusAway } from '../bus/stored.ts';
import { RunnerRefused } from '../host/runner.ts';
import { QemuMissing } from '../qemu/binary.ts';
import { AreaUnavailable } from '../storage/area.ts';
import { ObjectDamaged, ObjectMissing, StorageAway, StorageFull, StorageRefused } from '../storage/errors.ts';
import { LockHeld } from '../storage/host-lock.ts';
import { CliError, EXIT } from './error.ts';

/** Errors whose message says by itself what is wrong and what to do about it. */
const EXPLAINED = [
  ...[BusRefused, BusUnreachable, BusAway, StreamDiffers, ConsumerUnfit],
  ...[StorageRefused, StorageFull, ObjectMissing, ObjectDamaged, AreaUnavailable],
  ...[RunnerRefused, LockHeld, QemuMissing],
  ...[StackHeld, PortTaken, ServerFailed, ToolMissing, PackagesMissing],
];

/** What a person is told of an error, without a stack; null for what nobody foresaw, which is a fault of gymbus. */
export function asCliError(error: unknown): CliError | null {
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
  const explained = EXPLAINED.some((type) => error instanceof type);
  return explained ? new CliError((error as Error).message, EXIT.no, { cause: error }) : null;
}
