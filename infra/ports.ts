import { once } from 'node:events';
import { createServer } from 'node:net';

/** A port that was asked for is taken; the message names it and the remedy. */
export class PortTaken extends Error {
  override readonly name = 'PortTaken';
}

/**
 * Chooses a loopback port. Between the choice and its use another process may take it: whoever uses it must look.
 * @param asked a port that it must be; 0 for any free one; undefined for `preferred` if free, else any
 * @throws PortTaken
 */
export async function choosePort(what: string, asked: number | undefined, preferred: number): Promise<number> {
  if (asked === undefined) return (await isFree(preferred)) ? preferred : await anyFree();
  if (asked === 0) return anyFree();
  if (await isFree(asked)) return asked;
  throw new PortTaken(
    `port ${asked} for ${what} is in use on 127.0.0.1; stop what listens there (ss -ltnp 'sport = :${asked}' names it), or choose another port (0: any free one)`,
  );
}

async function isFree(port: number): Promise<boolean> {
  return (await tryListen(port)) !== null;
}

async function anyFree(): Promise<number> {
  const port = await tryListen(0);
  if (port === null) throw new PortTaken('no free port on 127.0.0.1');
  return port;
}

/** @returns the port it could listen on, or null when that is taken or not allowed */
async function tryListen(port: number): Promise<number | null> {
  const server = createServer();
  try {
    server.listen({ port, host: '127.0.0.1', exclusive: true });
    await once(server, 'listening');
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE' || code === 'EACCES') return null;
    throw error;
  } finally {
    if (server.listening) {
      server.close();
      await once(server, 'close');
    }
  }
}
