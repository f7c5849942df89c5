import { connect } from 'node:net';
import path from 'node:path';
import { z } from 'zod';
import { readJson } from './private-file.ts';
import { stillRuns } from './process-identity.ts';

/** How to reach the local stack. */
export interface StackAddress {
  /** With user and password. */
  natsUrl: string;
  s3: { endpoint: string; region: string; accessKeyId: string; secretAccessKey: string; bucket: string };
}

const Identity = z.object({
  pid: z.number(),
  startTicks: z.number(),
  bootId: z.string(),
  argv: z.array(z.string()).optional(),
});

/** What a running stack leaves in its data directory for others to find it by; removed when it stops. */
export const StackFile = z.object({
  schema: z.literal('gymbus.stack.v1'),
  owner: Identity,
  natsUrl: z.string(),
  s3: z.object({
    endpoint: z.string(),
    region: z.string(),
    accessKeyId: z.string(),
    secretAccessKey: z.string(),
    bucket: z.string(),
  }),
});
export type StackFile = z.infer<typeof StackFile>;

/** Servers started by a stack, for the next one to find what a killed one may have left. */
export const ServersFile = z.array(Identity.extend({ name: z.string() }));
export type ServersFile = z.infer<typeof ServersFile>;

export function stackFile(dataDir: string): string {
  return path.join(dataDir, 'stack.json');
}

const PROBE_MS = 2_000;

/** The stack that runs with this data directory and answers, else null. */
export async function findStack(dataDir: string): Promise<StackAddress | null> {
  const found = await readJson(stackFile(dataDir), (value) => StackFile.parse(value));
  if (found === null || !(await stillRuns(found.owner))) return null;
  const { natsUrl, s3 } = found;
  const nats = new URL(natsUrl);
  const [bus, storage] = await Promise.all([natsAnswers(Number(nats.port), nats.hostname), httpAnswers(s3.endpoint)]);
  return bus && storage ? { natsUrl, s3 } : null;
}

/** What a shell, the `nats` and `aws` commands or a client library need to reach the stack. */
export function stackEnvironment({ natsUrl, s3 }: StackAddress): Record<string, string> {
  return {
    NATS_URL: natsUrl,
    AWS_ENDPOINT_URL: s3.endpoint,
    AWS_ACCESS_KEY_ID: s3.accessKeyId,
    AWS_SECRET_ACCESS_KEY: s3.secretAccessKey,
    AWS_REGION: s3.region,
    GYMBUS_BUCKET: s3.bucket,
  };
}

/** A nats-server greets with INFO when it is ready for clients. */
export function natsAnswers(port: number, host = '127.0.0.1'): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host);
    const done = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_MS, () => done(false));
    socket.once('error', () => done(false));
    socket.once('close', () => done(false));
    socket.once('data', (data) => done(data.toString('latin1').startsWith('INFO')));
  });
}

/** Any status is an answer: without credentials it is a refusal. */
export async function httpAnswers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(PROBE_MS) });
    await response.arrayBuffer();
    return true;
  } catch {
    return false;
  }
}
