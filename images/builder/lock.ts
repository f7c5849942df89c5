import { createHash } from 'node:crypto';
import { createConnection, createServer, type Server } from 'node:net';

/**
 * A lock between processes of one machine: an abstract UNIX socket, which the kernel frees when its holder dies.
 * Who finds it taken connects to it and is woken when that connection ends.
 */
export async function acquireLock(
  key: string,
  options: { signal?: AbortSignal | undefined; onWait?: () => void } = {},
): Promise<AsyncDisposable> {
  const path = `\0gymbus-${createHash('sha256').update(key).digest('hex').slice(0, 32)}`;
  let told = false;
  for (;;) {
    options.signal?.throwIfAborted();
    const server = await tryListen(path);
    if (server) return { [Symbol.asyncDispose]: () => close(server) };
    if (!told) options.onWait?.();
    told = true;
    await untilFreed(path, options.signal);
  }
}

interface LockServer {
  readonly server: Server;
  readonly waiting: Set<{ destroy(): void }>;
}

function tryListen(path: string): Promise<LockServer | null> {
  return new Promise((resolve, reject) => {
    const waiting: LockServer['waiting'] = new Set();
    const server = createServer((socket) => {
      waiting.add(socket);
      // A waiter that goes away says so by an error or an end; neither concerns the holder.
      socket.on('error', () => {});
      socket.on('close', () => waiting.delete(socket));
      socket.resume();
    });
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE') resolve(null);
      else reject(error);
    });
    server.listen({ path }, () => {
      server.unref();
      resolve({ server, waiting });
    });
  });
}

function close({ server, waiting }: LockServer): Promise<void> {
  return new Promise((resolve, reject) => {
    server.close((error) => (error ? reject(error) : resolve()));
    for (const socket of waiting) socket.destroy();
  });
}

function untilFreed(path: string, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const socket = createConnection({ path });
    const end = () => {
      signal?.removeEventListener('abort', end);
      socket.destroy();
      resolve();
    };
    if (signal?.aborted) end();
    else signal?.addEventListener('abort', end, { once: true });
    // Refused: it was freed between our two looks.
    socket.on('error', end);
    socket.on('close', end);
    socket.resume();
  });
}
