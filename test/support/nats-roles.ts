import { readFileSync } from 'node:fs';
import path from 'node:path';
import { type NatsConnection, PermissionViolationError } from '@nats-io/transport-node';
import type { Permissions } from './nats-operator.ts';

export const permissionsFolder = path.resolve(import.meta.dirname, '../../infra/nats/permissions');
export const ROLES = ['publisher', 'runner', 'reader'] as const;
export type Role = (typeof ROLES)[number];

/** What a role may do on the bus, as the project gives it to operators. */
export function permissionsOf(role: Role): Permissions {
  return JSON.parse(readFileSync(path.join(permissionsFolder, `${role}.json`), 'utf8'));
}

/** Whether a right, with its wildcards, takes a subject in. */
export function covers(right: string, subject: string): boolean {
  const [rights, tokens] = [right.split('.'), subject.split('.')];
  const open = rights.at(-1) === '>';
  if (open ? tokens.length < rights.length : tokens.length !== rights.length) return false;
  return rights.every((token, n) => token === '>' || token === '*' || token === tokens[n]);
}

/** Whether the server refuses it; what it allows may still be answered by nobody, or with an error. */
export async function refused(nc: NatsConnection, what: 'publish' | 'subscription', subject: string): Promise<boolean> {
  let error: unknown = null;
  if (what === 'publish') {
    error = await nc.request(subject, '', { timeout: 500 }).then(
      () => null,
      (reason: Error) => reason.cause ?? reason,
    );
  } else {
    const subscription = nc.subscribe(subject, {
      callback: (reason) => {
        error = reason;
      },
    });
    // The answers come in the order asked.
    await nc.flush();
    subscription.unsubscribe();
  }
  return error instanceof PermissionViolationError;
}

const STREAMS = ['JOBS', 'RESULTS', 'EVENTS', 'DEAD'].map((name) => `GYMBUS_${name}`);
const BUCKETS = ['ATTEMPTS', 'RUNNERS', 'BATCHES'].map((name) => `KV_GYMBUS_${name}`);
const api = (...calls: string[]): string[] => calls.map((call) => `$JS.API.${call}`);
/** What the server must refuse to be published to. */
export const FORBIDDEN: Record<Role | 'all', string[]> = {
  all: [...STREAMS, ...BUCKETS]
    .flatMap((stream) =>
      api(
        `STREAM.DELETE.${stream}`,
        `STREAM.UPDATE.${stream}`,
        `STREAM.PURGE.${stream}`,
        `STREAM.MSG.DELETE.${stream}`,
      ),
    )
    .concat(
      api('CONSUMER.DELETE.GYMBUS_JOBS.a', 'CONSUMER.PAUSE.GYMBUS_JOBS.a', 'STREAM.CREATE.OTHER', 'STREAM.RESTORE.X'),
    ),
  publisher: [
    ...[...STREAMS, ...BUCKETS].map((stream) => `$JS.API.STREAM.CREATE.${stream}`),
    ...api('CONSUMER.CREATE.GYMBUS_JOBS.a', 'CONSUMER.MSG.NEXT.GYMBUS_JOBS.a', 'CONSUMER.CREATE.GYMBUS_RESULTS.a'),
    ...['gymbus.results.b.j', 'gymbus.events.b.j.started', 'gymbus.dead.i.b.j', 'gymbus.queued.i.b.j'],
    ...['$JS.ACK.GYMBUS_JOBS.a.1.1.1.1.0', '$KV.GYMBUS_ATTEMPTS.b.j', '$KV.GYMBUS_RUNNERS.host-a'],
  ],
  runner: [
    ...api('STREAM.MSG.GET.GYMBUS_JOBS', 'CONSUMER.CREATE.GYMBUS_RESULTS.a', 'CONSUMER.MSG.NEXT.GYMBUS_RESULTS.a'),
    ...['gymbus.jobs.i.b.j', 'gymbus.queued.i.b.j', '$KV.GYMBUS_BATCHES.b', '$JS.ACK.GYMBUS_RESULTS.a.1.1.1.1.0'],
  ],
  reader: [
    ...[...STREAMS, ...BUCKETS].map((stream) => `$JS.API.STREAM.CREATE.${stream}`),
    ...api('CONSUMER.CREATE.GYMBUS_JOBS.a', 'CONSUMER.MSG.NEXT.GYMBUS_JOBS.a', 'CONSUMER.DURABLE.CREATE.GYMBUS_JOBS.a'),
    ...['gymbus.jobs.i.b.j', 'gymbus.results.b.j', 'gymbus.events.b.j.started', 'gymbus.dead.i.b.j'],
    ...['$JS.ACK.GYMBUS_JOBS.a.1.1.1.1.0', '$KV.GYMBUS_ATTEMPTS.b.j', '$KV.GYMBUS_RUNNERS.a', '$KV.GYMBUS_BATCHES.b'],
  ],
};
/** What it must refuse to be listened to. */
export const UNHEARD: Record<Role, string[]> = {
  publisher: ['gymbus.results.>', 'gymbus.jobs.>', 'gymbus.queued.>', 'gymbus.events.>', '$KV.>', '$JS.>', '>'],
  runner: ['gymbus.results.>', 'gymbus.jobs.>', '$KV.>', '$JS.>', '>'],
  reader: ['gymbus.jobs.>', '$JS.API.>', '$JS.ACK.>', '>'],
};
