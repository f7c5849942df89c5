import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import http from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import type { Duplex, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { commonFiles } from '../../images/recipes.ts';
import { WebProxy } from '../../runner/job/web-proxy.ts';
import { NetworkChannel } from '../../runner/qemu/network-channel.ts';
import { collect } from '../support/collect.ts';

const MIB = 2 ** 20;
const file = randomBytes(8 * MIB);
const sha256 = (data: Uint8Array): string => createHash('sha256').update(data).digest('hex');

/** The guest's own program, on this machine: between it and the runner is a socket in place of a port. */
let guest: ChildProcess;
let guestPort: number;
let stderr: string;
let proxy: WebProxy;
let closed: string[];
let servers: (Server | http.Server)[];

beforeEach(async () => {
  servers = [];
  closed = [];
  stderr = '';
  const script = path.join(import.meta.dirname, '../support/network_guest.py');
  guest = spawn('python3', ['-I', script, commonFiles().network], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
  (guest.stderr as Readable).on('data', (chunk) => {
    stderr += String(chunk);
  });
  const [line] = await once(guest.stdout as Readable, 'data');
  guestPort = Number(String(line).trim());
});
afterEach(async () => {
  proxy[Symbol.dispose]();
  guest.kill('SIGKILL');
  for (const server of servers) server.close();
  if (guest.exitCode === null && guest.signalCode === null) await once(guest, 'exit');
});

function connectGuest(hosts: string[]): NetworkChannel {
  proxy = new WebProxy({ hosts, allowPrivate: true });
  return new NetworkChannel(
    guest.stdio[3] as Duplex,
    (it) => proxy.accept(it),
    (reason) => closed.push(reason),
  );
}

async function listening(server: Server | http.Server): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** As a program of the guest does it. */
async function get(address: string, body?: Buffer): Promise<{ status: number | undefined; body: Buffer }> {
  const request = http.request({
    ...{ host: '127.0.0.1', port: guestPort, path: address, method: body ? 'PUT' : 'GET', agent: false },
  });
  request.end(body);
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return { status: response.statusCode, body: await buffer(response) };
}

async function tunnel(target: string): Promise<Socket> {
  const request = http.request({ host: '127.0.0.1', port: guestPort, path: target, method: 'CONNECT', agent: false });
  request.end();
  const [response, socket] = (await once(request, 'connect')) as [http.IncomingMessage, Socket];
  expect(response.statusCode).toBe(200);
  return socket;
}

describe('a guest’s network', () => {
  it('brings files whole, several at once, and takes them', async () => {
    const port = await listening(
      http.createServer(async (request, response) => {
        if (request.method === 'PUT') response.end(sha256(await buffer(request)));
        else response.end(file.subarray(0, Number(request.url?.slice(1))));
      }),
    );
    connectGuest([`localhost:${port}`]);
    const sizes = [0, 1, 16_384, 131_072, 1_000_003, 8 * MIB, 8 * MIB, 8 * MIB];
    const bodies = await Promise.all(sizes.map((size) => get(`http://localhost:${port}/${size}`)));
    bodies.forEach(({ status, body }, index) => {
      expect(status).toBe(200);
      expect(sha256(body)).toBe(sha256(file.subarray(0, sizes[index])));
    });
    const taken = await get(`http://localhost:${port}/`, file);
    expect(String(taken.body)).toBe(sha256(file));
    expect(proxy.use.read()).toMatchObject([{ host: 'localhost', port, connections: sizes.length + 1, refused: 0 }]);
    expect(proxy.use.read()[0]?.received_bytes).toBeGreaterThan(25 * MIB);
    expect(proxy.use.read()[0]?.sent_bytes).toBeGreaterThan(8 * MIB);
    expect(closed).toEqual([]);
  });

  it('half-closes as TCP does', async () => {
    const port = await listening(
      createServer({ allowHalfOpen: true }, async (socket) => {
        const all = await collect(socket);
        socket.end(`${all.length} ${sha256(all)}`);
      }),
    );
    connectGuest([`localhost:${port}`]);
    const socket = await tunnel(`localhost:${port}`);
    socket.end(file.subarray(0, 3 * MIB));
    expect(String(await collect(socket))).toBe(`${3 * MIB} ${sha256(file.subarray(0, 3 * MIB))}`);
  });

  it('takes more connections than it carries at once, one after the other', async () => {
    const port = await listening(http.createServer((_, response) => setTimeout(() => response.end('x'), 20)));
    connectGuest([`localhost:${port}`]);
    const answers = await Promise.all(Array.from({ length: 150 }, () => get(`http://localhost:${port}/`)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(150);
  });

  it('does not hold up one connection for another that nobody reads', async () => {
    const port = await listening(http.createServer((_, response) => void response.end(file)));
    connectGuest([`localhost:${port}`]);
    const stuck = await tunnel(`localhost:${port}`);
    stuck.pause();
    stuck.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    const { body } = await get(`http://localhost:${port}/`);
    expect(body.length).toBe(file.length);
    stuck.destroy();
    // A program that dropped its connection has ended it for the server, too.
    await expect.poll(() => (servers[0] as http.Server & { _connections: number })._connections).toBe(0);
  });

  it('survives programs that break off', async () => {
    const port = await listening(createServer((socket) => void socket.on('error', () => undefined).resume()));
    connectGuest([`localhost:${port}`]);
    for (let n = 0; n < 20; n += 1) {
      const socket = n % 2 === 0 ? connect(guestPort, '127.0.0.1') : await tunnel(`localhost:${port}`);
      socket.on('error', () => undefined).write(randomBytes(n * 1_000));
      socket.resetAndDestroy();
    }
    expect((await get('http://evil.example/')).status).toBe(403);
    expect([closed, stderr, guest.exitCode]).toEqual([[], '', null]);
  });

  it('ends in the guest when the runner closes it', async () => {
    const channel = connectGuest(['localhost']);
    const socket = connect(guestPort, '127.0.0.1').on('error', () => undefined);
    await once(socket, 'connect');
    channel.close('enough');
    await once(guest, 'exit');
    expect(stderr).toContain('the runner has closed the port');
  });
});
