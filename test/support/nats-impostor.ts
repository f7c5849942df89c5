import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';

/** Speaks just enough of the protocol to be connected to, and says it is another version. */
export async function startImpostor(version: string, jetstream = true) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    const { port } = server.address() as { port: number };
    const info = { server_id: 'X', version, host: '127.0.0.1', port, headers: true, max_payload: 1_048_576, jetstream };
    socket.write(`INFO ${JSON.stringify(info)}\r\n`);
    socket.on('data', (data) => data.toString().includes('PING') && socket.write('PONG\r\n'));
    socket.on('error', () => {});
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  return {
    url: `nats://127.0.0.1:${port}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
