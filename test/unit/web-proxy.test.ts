import type { LookupAddress } from 'node:dns';
import { once } from 'node:events';
import http from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Lookup } from '../../functions/download/lookup.ts';
import { WebProxy } from '../../runner/job/web-proxy.ts';
import { type Channel, openChannel } from '../support/channel.ts';

/** A program of a guest, connected to its proxy. */
class Client {
  text = '';
  ended = false;
  readonly socket: Socket;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk) => {
      this.text += chunk.toString('latin1');
    });
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('error', () => undefined);
  }

  say(...lines: string[]): void {
    this.socket.write(lines.map((line) => `${line}\r\n`).join(''));
  }

  async until(pattern: RegExp): Promise<string> {
    await expect.poll(() => this.text, { timeout: 5_000 }).toMatch(pattern);
    return this.text;
  }
}

let channels: Channel[];
let servers: (Server | http.Server)[];
let proxy: WebProxy;
beforeEach(() => {
  channels = [];
  servers = [];
});
afterEach(async () => {
  proxy?.[Symbol.dispose]();
  for (const server of servers) server.close();
  for (const channel of channels) await channel[Symbol.asyncDispose]();
});

async function connected(): Promise<Client> {
  const channel = await openChannel();
  channels.push(channel);
  // As a connection of a guest is.
  channel.near.allowHalfOpen = true;
  proxy.accept(channel.near);
  return new Client(channel.far);
}

async function listening(server: Server | http.Server): Promise<number> {
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const web = (handler: http.RequestListener): Promise<number> => listening(http.createServer(handler));
const open = (hosts: string[], allowPrivate = true): WebProxy => {
  proxy = new WebProxy({ hosts, allowPrivate });
  return proxy;
};

describe('a request of an http:// address', () => {
  it('is passed on with what belongs to it, and answered', async () => {
    const port = await web((request, response) => {
      const seen = JSON.stringify({ url: request.url, method: request.method, headers: request.headers });
      response.setHeader('Set-Cookie', ['a=1', 'b=2']);
      response.setHeader('Keep-Alive', 'timeout=77');
      request.on('data', () => undefined).on('end', () => response.writeHead(201, 'Made').end(seen));
    });
    open([`localhost:${port}`]);
    const client = await connected();
    client.say(
      `POST http://LOCALHOST:${port}/a?b=c HTTP/1.1`,
      'Host: somebody.else',
      'Proxy-Connection: keep-alive',
      'Connection: x-private',
      'X-Private: 1',
      'X-Kept: 2',
      'Content-Length: 3',
      '',
    );
    client.socket.write('abc');
    const answer = await client.until(/\}\}/);
    expect(answer).toMatch(/^HTTP\/1.1 201 Made\r\n/);
    expect(answer).toMatch(/Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n/);
    expect(answer).not.toContain('timeout=77');
    const seen = JSON.parse(/\{.*\}\}/.exec(answer)?.[0] ?? '');
    expect(seen).toMatchObject({ url: '/a?b=c', method: 'POST' });
    // The server that was judged is the one that is asked.
    expect(seen.headers).toMatchObject({ host: `localhost:${port}`, 'x-kept': '2', 'content-length': '3' });
    expect(Object.keys(seen.headers)).not.toEqual(expect.arrayContaining(['x-private']));
    expect(seen.headers['proxy-connection']).toBeUndefined();
    const [row, ...more] = proxy.use.read();
    expect(more).toEqual([]);
    expect(row).toMatchObject({ host: 'localhost', port, connections: 1, refused: 0, failed: 0 });
    expect(row?.received_bytes).toBeGreaterThan(100);
    expect(row?.sent_bytes).toBeGreaterThan(3);
  });

  it('may be one of several on a connection, with a body of no known length', async () => {
    const port = await web(async (request, response) => {
      response.end(`[${request.url} ${await text(request)}]`);
    });
    open([`localhost:${port}`]);
    const client = await connected();
    client.say(
      `PUT http://localhost:${port}/1 HTTP/1.1`,
      'Host: x',
      'Transfer-Encoding: chunked',
      '',
      '3',
      'one',
      '0',
      '',
    );
    await client.until(/\[\/1 one\]/);
    client.say(`GET http://localhost:${port}/2 HTTP/1.1`, 'Host: x', '');
    await client.until(/\[\/2 \]/);
    expect(proxy.use.read()).toMatchObject([{ connections: 2 }]);
  });

  it('sent before the last one was answered ends its connection: each would cost one of ours', async () => {
    let served = 0;
    const port = await web(() => {
      served += 1;
    });
    open([`localhost:${port}`]);
    const client = await connected();
    const request = `GET http://localhost:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
    client.socket.write(request.repeat(500));
    await once(client.socket, 'close');
    expect(served).toBeLessThan(2);
    expect(proxy.use.read()[0]?.connections ?? 0).toBeLessThan(2);
    const tunnel = await connected();
    tunnel.socket.write(`${request}CONNECT localhost:${port} HTTP/1.1\r\n\r\n`);
    await once(tunnel.socket, 'close');
    const next = await connected();
    next.say(`GET http://localhost:${port}/ HTTP/1.1`, 'Host: x', '');
    await expect.poll(() => served).toBeGreaterThan(0);
  });

  it.each([
    ['/', 'it takes http:// addresses'],
    ['https://localhost/', 'it takes http:// addresses'],
    ['ftp://localhost/', 'it takes http:// addresses'],
    ['http:///', 'it takes http:// addresses'],
  ])('of %s is none', async (address, said) => {
    open(['localhost']);
    const client = await connected();
    client.say(`GET ${address} HTTP/1.1`, 'Host: localhost', '');
    expect(await client.until(/gymbus: .*\n/)).toMatch(/^HTTP\/1.1 400 /);
    expect(client.text).toContain(said);
    expect(proxy.use.read()).toEqual([]);
  });

  it('whose server hangs up is answered all the same', async () => {
    const port = await listening(createServer((socket) => socket.destroy()));
    open([`localhost:${port}`]);
    const client = await connected();
    client.say(`GET http://localhost:${port}/ HTTP/1.1`, 'Host: x', '');
    expect(await client.until(/gymbus: .*\n/)).toMatch(/^HTTP\/1.1 502 /);
  });

  it('whose server answers nonsense ends nothing but itself', async () => {
    const port = await listening(
      createServer(
        (socket) =>
          void socket
            .on('error', () => undefined)
            .once('data', () => socket.end('HTTP/1.1 200 \x01\r\nA: \x02\r\n\r\n')),
      ),
    );
    open([`localhost:${port}`]);
    const client = await connected();
    client.say(`GET http://localhost:${port}/ HTTP/1.1`, 'Host: x', '');
    expect(await client.until(/gymbus: .*\n/)).toMatch(/^HTTP\/1.1 502 /);
  });
});

describe('CONNECT', () => {
  it('carries what it is given, both ways, each to its own end', async () => {
    let heard = '';
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('data', (chunk) => {
        heard += chunk.toString();
      });
      socket.on('end', () => setTimeout(() => socket.end(`heard ${heard}`), 20));
    });
    const port = await listening(server);
    open([`localhost:${port}`]);
    const client = await connected();
    // Some of it behind the request, without waiting.
    client.socket.write(`CONNECT localhost:${port} HTTP/1.1\r\nHost: x\r\n\r\nfirst `);
    await client.until(/^HTTP\/1.1 200 /);
    client.socket.end('last');
    await client.until(/heard first last$/);
    await expect.poll(() => client.ended).toBe(true);
    await expect
      .poll(() => proxy.use.read())
      .toEqual([
        {
          ...{ host: 'localhost', port, connections: 1, refused: 0, failed: 0 },
          ...{ sent_bytes: 'first last'.length, received_bytes: 'heard first last'.length },
        },
      ]);
  });

  it('ends for the guest when the server breaks it off, and for the server when the guest does', async () => {
    const sockets: Socket[] = [];
    const port = await listening(createServer((socket) => void sockets.push(socket.on('error', () => undefined))));
    open([`localhost:${port}`]);
    const [one, two] = [await connected(), await connected()];
    for (const client of [one, two]) {
      client.say(`CONNECT localhost:${port} HTTP/1.1`, '');
      await client.until(/200/);
    }
    sockets[0]?.resetAndDestroy();
    await once(one.socket, 'close');
    const closed = once(sockets[1] as Socket, 'close');
    sockets[1]?.resume();
    two.socket.destroy();
    await closed;
  });

  it('holds little of what nobody takes', async () => {
    const sockets: Socket[] = [];
    const port = await listening(createServer((socket) => void sockets.push(socket.pause())));
    open([`localhost:${port}`]);
    const client = await connected();
    client.say(`CONNECT localhost:${port} HTTP/1.1`, '');
    await client.until(/200/);
    // More than all buffers of the kernel on the way.
    client.socket.write(Buffer.alloc(64 * 2 ** 20));
    await sleep(500);
    expect(client.socket.writableLength).toBeGreaterThan(32 * 2 ** 20);
    sockets[0]?.on('error', () => undefined).destroy();
    await expect.poll(() => client.socket.closed).toBe(true);
  });

  it.each(['localhost', 'http://localhost:80/', 'a@localhost:80', ''])('to %j is refused', async (target) => {
    open(['localhost']);
    const client = await connected();
    client.say(`CONNECT ${target} HTTP/1.1`, 'Host: x', '');
    expect(await client.until(/\r\n\r\n/)).toMatch(/^HTTP\/1.1 400 /);
    expect(proxy.use.read()).toEqual([]);
  });
});

describe('what a job may not reach', () => {
  const CASES: [what: string, hosts: string[], allowPrivate: boolean, target: string, said: RegExp][] = [
    [
      'a host that it did not name',
      ['a.example', 'b.example:8443'],
      true,
      'evil.example:443',
      /may not reach evil\.example:443, its network\.hosts are a\.example, b\.example:8443; name it there/,
    ],
    ['another port', ['localhost'], true, 'localhost:22', /may not reach localhost:22/],
    [
      'a name that leads to this host',
      ['localhost'],
      false,
      'localhost:80',
      /localhost leads to .*127\.0\.0\.1.*GYMBUS_DOWNLOAD_PRIVATE=yes/,
    ],
    ['an address of this host', ['127.0.0.1'], false, '127.0.0.1:80', /127\.0\.0\.1 leads to 127\.0\.0\.1/],
    ['another way to write it', ['127.0.0.1'], false, '0x7f.1:80', /127\.0\.0\.1 leads to/],
    ['the metadata of a cloud', ['169.254.169.254'], false, '169.254.169.254:80', /169\.254\.169\.254 leads to/],
    ['an address of version 6', ['localhost'], true, '[::1]:80', /may not reach \[::1\]:80/],
  ];

  it.each(CASES)('%s', async (_, hosts, allowPrivate, target, said) => {
    const dialled: object[] = [];
    proxy = new WebProxy({ hosts, allowPrivate }, (it) => dialled.push(it));
    const tunnel = await connected();
    tunnel.say(`CONNECT ${target} HTTP/1.1`, 'Host: x', '');
    const request = await connected();
    request.say(`GET http://${target}/ HTTP/1.1`, 'Host: x', '');
    for (const client of [tunnel, request]) {
      expect(await client.until(/\n\r?\n.*\n$/)).toMatch(/^HTTP\/1.1 403 Forbidden\r\n/);
      expect(client.text).toMatch(said);
    }
    const [row] = proxy.use.read();
    expect(row).toMatchObject({ connections: 0, refused: 2, failed: 0, sent_bytes: 0, received_bytes: 0 });
    expect(dialled).toEqual(
      Array(2).fill(expect.objectContaining({ refused: true, error: expect.stringMatching(said) })),
    );
  });

  it('is counted for so many hosts, and the others together', async () => {
    open(['a.example']);
    const client = await connected();
    for (let n = 0; n < 100; n += 1) {
      // A refusal ends its connection.
      const each = n === 0 ? client : await connected();
      each.say(`CONNECT ${n}.example:443 HTTP/1.1`, '');
      await each.until(/403/);
    }
    const rows = proxy.use.read();
    expect(rows).toHaveLength(64);
    expect(rows.at(-1)).toMatchObject({ host: '(others)', port: 0, refused: 37 });
  });
});

describe('a name that leads elsewhere from one moment to the next', () => {
  /** Public as far as anybody knows, and given to nobody: what is sent there arrives nowhere. */
  const PUBLIC: LookupAddress = { address: '4000::1', family: 6 };
  const HERE: LookupAddress = { address: '127.0.0.1', family: 4 };

  /** A host whose addresses are these, one answer a look-up; a server of this machine listens at the port that is asked for. */
  async function rebinding(...answers: LookupAddress[][]) {
    let reached = 0;
    const count = (socket: Socket): void => {
      reached += 1;
      socket.end();
    };
    const target = `rebind.example:${await listening(createServer(count))}`;
    const asked: string[] = [];
    const lookup: Lookup = (name, _options, done) => {
      asked.push(name);
      done(null, answers.shift() ?? [HERE]);
    };
    proxy = new WebProxy({ hosts: [target], allowPrivate: false, lookup });
    return { target, asked, reached: () => reached };
  }

  it.each([
    ['CONNECT', (target: string) => `CONNECT ${target} HTTP/1.1`],
    ['request', (target: string) => `GET http://${target}/ HTTP/1.1`],
  ])('leads no %s to this host', async (_, wayTo) => {
    const { target, asked, reached } = await rebinding([PUBLIC], [HERE]);
    const first = await connected();
    first.say(wayTo(target), 'Host: x', '');
    await expect.poll(() => asked).toHaveLength(1);
    const second = await connected();
    second.say(wayTo(target), 'Host: x', '');
    expect(await second.until(/\n\r?\n.*\n$/)).toMatch(/^HTTP\/1.1 403 Forbidden\r\n/);
    expect(second.text).toMatch(/rebind\.example leads to 127\.0\.0\.1/);
    // Of two addresses the next is tried after a quarter of a second.
    await sleep(500);
    proxy[Symbol.dispose]();
    await expect.poll(() => proxy.use.read()).toMatchObject([{ connections: 0, refused: 1, failed: 1 }]);
    expect([asked.length, reached()]).toEqual([2, 0]);
  });

  it('leads nobody here by one answer with both', async () => {
    const { target, asked, reached } = await rebinding([PUBLIC, HERE]);
    const client = await connected();
    client.say(`CONNECT ${target} HTTP/1.1`, 'Host: x', '');
    await expect.poll(() => asked).toHaveLength(1);
    await sleep(500);
    proxy[Symbol.dispose]();
    await expect.poll(() => proxy.use.read()).toMatchObject([{ connections: 0, refused: 0, failed: 1 }]);
    expect([asked.length, reached()]).toEqual([1, 0]);
  });
});

describe('what cannot be reached', () => {
  it.each([
    ['a name that is none', (_port: number) => 'no-such-host.invalid:443', /no-such-host\.invalid/],
    ['a port where nobody listens', (port: number) => `localhost:${port}`, /ECONNREFUSED/],
  ])('%s', async (_, targetAt, said) => {
    const closed = createServer();
    const port = await listening(closed);
    closed.close();
    await once(closed, 'close');
    open(['no-such-host.invalid', `localhost:${port}`]);
    const client = await connected();
    client.say(`CONNECT ${targetAt(port)} HTTP/1.1`, '');
    expect(await client.until(/gymbus: .*\n/)).toMatch(/^HTTP\/1.1 502 Bad Gateway\r\n/);
    expect(client.text).toMatch(said);
    expect(proxy.use.read()).toMatchObject([{ connections: 0, refused: 0, failed: 1 }]);
  });
});

it('answers what is no HTTP, and lives on', async () => {
  open(['localhost']);
  const client = await connected();
  client.socket.write('\x16\x03\x01\x02\x00nonsense\r\n\r\n');
  expect(await client.until(/gymbus: .*\n/)).toMatch(/^HTTP\/1.1 400 /);
  const other = await connected();
  other.say('CONNECT a.example:443 HTTP/1.1', '');
  await other.until(/403/);
});

it('ends everything that goes through it when it is over', async () => {
  const sockets: Socket[] = [];
  const port = await listening(createServer((socket) => void sockets.push(socket.on('error', () => undefined))));
  open([`localhost:${port}`]);
  const client = await connected();
  client.say(`CONNECT localhost:${port} HTTP/1.1`, '');
  await client.until(/200/);
  const closed = Promise.all([once(client.socket, 'close'), once((sockets[0] as Socket).resume(), 'close')]);
  proxy[Symbol.dispose]();
  await closed;
});
