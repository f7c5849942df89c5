import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { chmod, chown, mkdir, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { DESCRIPTOR } from './arguments.ts';
import { within } from './deadline.ts';
import { QmpError } from './errors.ts';
import type { QmpClient } from './qmp.ts';
import type { MachineUser } from './rights.ts';

/** Loading takes 20 to 40 ms, saving 33; a starved host, seconds. */
const MIGRATION_DEADLINE_MS = 30_000;

/** Shared memory is left out of the state: the memory file is the memory. */
const CAPABILITIES = {
  capabilities: [
    { capability: 'x-ignore-shared', state: true },
    { capability: 'events', state: true },
  ],
};

/**
 * Writes the device state of a stopped machine to a file. QEMU's sandbox forbids it to start a process and 7.2 cannot write
 * to a file itself, so it writes to a socket that is read here.
 * @param folder for the socket, made and removed here; its path is short. QEMU's user passes through it and cannot write to it: a name
 * in a folder of that user's might be a link when rights are changed by it
 * @param user QEMU's; null for the runner's own
 */
export async function saveState(
  qmp: QmpClient,
  folder: string,
  user: MachineUser | null,
  file: string,
  signal: AbortSignal,
): Promise<void> {
  const socketPath = path.join(folder, 'save.sock');
  const server = createServer();
  await mkdir(folder, { mode: 0o700 });
  try {
    server.listen(socketPath);
    await once(server, 'listening', { signal });
    if (user) await letIn(folder, socketPath, user);
    await qmp.execute('migrate-set-capabilities', CAPABILITIES, { signal });
    // All begun in one go: a wait that nobody listens to yet would end the whole process when it fails.
    const [ended] = await Promise.all([
      finished(qmp, 'saving the device state'),
      within(
        receive(server, file, signal),
        MIGRATION_DEADLINE_MS,
        () => new Error(`qemu did not write its device state within ${MIGRATION_DEADLINE_MS} ms`),
        signal,
      ),
      qmp.execute('migrate', { uri: `unix:${socketPath}` }, { signal }),
    ]);
    if (ended !== 'completed') throw new QmpError(`saving the device state ended as ${ended}`);
  } finally {
    server.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** The folder last: until then nobody else gets at what is in it. */
async function letIn(folder: string, socketPath: string, { gid }: MachineUser): Promise<void> {
  for (const [file, mode] of [
    [socketPath, 0o660],
    [folder, 0o710],
  ] as const) {
    await chown(file, process.geteuid?.() ?? 0, gid);
    await chmod(file, mode);
  }
}

async function receive(server: Server, file: string, signal: AbortSignal): Promise<void> {
  const [socket] = await once(server, 'connection', { signal });
  await pipeline(socket as Socket, createWriteStream(file, { flush: true }), { signal });
}

/** Loads the device state from the inherited descriptor. The machine is then paused as the template was. */
export async function restoreState(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const [ended] = await Promise.all([
    finished(qmp, 'loading the device state'),
    qmp.execute('migrate-set-capabilities', CAPABILITIES, { signal }),
    qmp.execute('migrate-incoming', { uri: `fd:${DESCRIPTOR.state}` }, { signal }),
  ]);
  if (ended !== 'completed') throw new QmpError(`loading the device state ended as ${ended}`);
}

const ENDS = ['completed', 'failed', 'cancelled'] as const;

async function finished(qmp: QmpClient, what: string): Promise<(typeof ENDS)[number]> {
  const event = await qmp.next(
    ({ name, data }) => name === 'MIGRATION' && ENDS.some((end) => end === data.status),
    MIGRATION_DEADLINE_MS,
    `the end of ${what}`,
  );
  return event.data.status as (typeof ENDS)[number];
}
