import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';

/** Often enough that the client does not take the server for dead. */
const TRICKLE_MS = 5_000;

/**
 * A file on an HTTP server whose last byte comes when the test says so: a set-up that downloads it stands still exactly
 * there. Once released it is served at once.
 */
export interface HeldFile extends AsyncDisposable {
  /** A set-up step that waits for the file. */
  step: { type: 'download'; parameters: { files: { url: string; path: string }[] } };
  /** Resolves when so many requests for it have come. */
  asked(times?: number): Promise<void>;
  release(): void;
}

export async function holdFile(): Promise<HeldFile> {
  const waiting = new Set<ServerResponse>();
  let released = false;
  let requests = 0;
  let onRequest: (() => void)[] = [];
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    if (released) response.end('file\n');
    else waiting.add(response.on('close', () => waiting.delete(response)));
    requests += 1;
    for (const wake of onRequest) wake();
    onRequest = [];
  });
  const trickle = setInterval(() => {
    for (const response of waiting) response.write('.');
  }, TRICKLE_MS);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the file server has no port');
  const url = `http://127.0.0.1:${address.port}/file`;
  return {
    step: { type: 'download', parameters: { files: [{ url, path: '/tmp/held' }] } },
    async asked(times = 1) {
      while (requests < times) await new Promise<void>((resolve) => onRequest.push(resolve));
    },
    release() {
      released = true;
      for (const response of waiting) response.end('file\n');
    },
    async [Symbol.asyncDispose]() {
      clearInterval(trickle);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
