import { PermissionViolationError } from '@nats-io/transport-node';

/** The server cannot serve gymbus, or refuses us; waiting will not help. The message carries the remedy. */
export class BusRefused extends Error {
  override readonly name = 'BusRefused';
}

/** No server answered within the time given. */
export class BusUnreachable extends Error {
  override readonly name = 'BusUnreachable';
}

/** The refusal of a user who has no right to what was asked, which no waiting mends; null for every other error. */
export function explainDenied(error: unknown): BusRefused | null {
  const denied = [error, (error as Error).cause].find((one) => one instanceof PermissionViolationError);
  if (!(denied instanceof PermissionViolationError)) return null;
  return new BusRefused(
    `nats-server allows this user no ${denied.operation} to ${denied.subject}; give it the rights of its role: infra/nats/permissions`,
    { cause: error },
  );
}
