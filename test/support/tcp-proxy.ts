import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** What becomes of the bytes of one direction: passed on, kept back until they are passed again, or thrown away. */
type Passage = 'pass' | 'hold' | 'drop';

/**
 * A TCP proxy before a server that stops passing bytes when the test says so, the connection left open: what a broken
 * network looks like from both ends.
 */
export interface TcpProxy extends AsyncDisposable {
  port: number;
  /** Asked for each piece of bytes on its way to the server, before it is passed on. */
  onUp: (bytes: Buffer) => void;
  up: Passage;
  down: Passage;
  /** Passes on what was held, in order. */
  flush(): void;
  /** Breaks the connections there are; new ones are taken. */
  cut(): void;
}

export async function startTcpProxy(serverPort: number): Promise<TcpProxy> {
  const pairs = new Set<{ client: Socket; server: Socket }>();
  let held: { to: Socket; bytes: Buffer }[] = [];
  const carry = (passage: Passage, to: Socket, bytes: Buffer): void => {
    if (passage === 'pass') to.write(bytes);
    else if (passage === 'hold') held.push({ to, bytes });
  };
  const listener = createServer((client) => {
    const server = connect(serverPort, '127.0.0.1');
    const pair = { client, server };
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    client.setNoDelay(true);
    server.setNoDelay(true);
    client.on('data', (bytes) => {
      proxy.onUp(bytes);
      carry(proxy.up, server, bytes);
    });
    server.on('data', (bytes) => carry(proxy.down, client, bytes));
    for (const socket of [client, server]) socket.on('error', end);
    // Bytes that are held outlive the client that sent them, as they do on a real network.
    client.on('close', () => proxy.up === 'pass' && end());
    server.on('close', end);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const proxy: TcpProxy = {
    port: address.port,
    onUp: () => undefined,
    up: 'pass',
    down: 'pass',
    flush() {
      for (const { to, bytes } of held) to.write(bytes);
      held = [];
    },
    cut() {
      held = [];
      for (const { client, server } of [...pairs]) {
        client.destroy();
        server.destroy();
      }
      pairs.clear();
    },
    async [Symbol.asyncDispose]() {
      proxy.cut();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
  return proxy;
}
