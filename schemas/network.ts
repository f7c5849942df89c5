import { z } from 'zod';

const LABEL = '[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?';
/** A name, `*.` before it for all below it, a port behind it. */
export const HOST_PATTERN = new RegExp(`^(\\*\\.)?${LABEL}(?:\\.${LABEL})*(?::([1-9][0-9]{0,4}))?$`);

const HOST_RULE =
  'must be a host in lower case like example.org, with *. before it for all names below, with :PORT behind it for another port than 80 and 443';

/** Hosts as an image's policy and a job's request name them. */
export const HostPattern = z
  .string()
  .max(253 + ':65535'.length)
  .regex(HOST_PATTERN, HOST_RULE)
  .refine((text) => Number(HOST_PATTERN.exec(text)?.[2] ?? 1) <= 65_535, HOST_RULE)
  .describe('`example.org`, `*.example.org` for all names below it; `:8443` behind it in place of ports 80 and 443');

/** Hosts that a job's guest is to reach. */
export const NetworkRequest = z.strictObject({
  hosts: z.array(HostPattern).min(1).max(64),
});

/** What a guest did with one host of those, or with one that it was refused. */
export const HostUse = z.looseObject({
  host: z.string().describe('As the guest named it; `(others)` for all beyond the first 64'),
  port: z.number().int().describe('0 for `(others)`'),
  connections: z.number().int().nonnegative().describe('That were made'),
  refused: z.number().int().nonnegative().describe('That the job or this host does not allow'),
  failed: z.number().int().nonnegative().describe('That were allowed and could not be made'),
  sent_bytes: z.number().int().nonnegative().describe('From the guest'),
  received_bytes: z.number().int().nonnegative().describe('To the guest'),
});
export type HostUse = z.infer<typeof HostUse>;
