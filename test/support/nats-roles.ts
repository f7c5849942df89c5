import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Permissions } from './nats-operator.ts';

export const permissionsFolder = path.resolve(import.meta.dirname, '../../infra/nats/permissions');
export const ROLES = ['publisher', 'runner', 'reader'] as const;
export type Role = (typeof ROLES)[number];

/** What a role may do on the bus, as the project gives it to operators. */
export function permissionsOf(role: Role): Permissions {
  return JSON.parse(readFileSync(path.join(permissionsFolder, `${role}.json`), 'utf8'));
}
