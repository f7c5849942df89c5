import http from 'node:http';
import type { Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import { dial, type Reach, type Target, TargetRefused } from './dial.ts';
import { NetworkUse } from './network-use.ts';

/** How one connection that a guest's program wanted went. */
export interface Dialled extends Target {
  /** Null: it was made. */
  error: string | null;
  refused: boolean;
}

/** Headers that are between two neighbours, and not passed on (RFC 9110, 7.6.1). */
const HOP_BY_HOP = new Set(
  'connection proxy-connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade'.split(
    ' ',
  ),
);
const MOST_HEADER_BYTES = 64 * 1024;

/**
 * The proxy at the other end of a guest's network, for CONNECT and for requests of http:// addresses. It listens nowhere: connections
 * are handed to it. Each target is judged, resolved and connected to by the runner.
 */
export class WebProxy implements Disposable {
  readonly #server: http.Server;
  readonly #reach: Reach;
  readonly #use = new NetworkUse();
  readonly #onDial: (dialled: Dialled) => void;
  readonly #clients = new Set<Duplex>();
  readonly #sockets = new Set<Socket>();
  /** With a request that is not answered yet. Whoever sends more into one that waits costs a connection each: browsers do not. */
  readonly #busy = new WeakSet<Duplex>();

  /** @param onDial told of each connection that was wanted */
  constructor(reach: Reach, onDial: (dialled: Dialled) => void = () => undefined) {
    this.#reach = reach;
    this.#onDial = onDial;
    this.#server = http.createServer({ maxHeaderSize: MOST_HEADER_BYTES, keepAliveTimeout: 0 });
    // What HTTP cannot carry and its parser took ends the connection that it came by, and nothing else.
    this.#server.on('request', (request, response) => {
      if (!this.#begins(request.socket)) return;
      response.once('close', () => this.#busy.delete(request.socket));
      this.#forward(request, response).catch(() => response.destroy());
    });
    this.#server.on('connect', (request, client, head) => {
      if (!this.#begins(client)) return;
      this.#tunnel(request, client, head).catch(() => client.destroy());
    });
    this.#server.on('clientError', (_error, client) => refuseRaw(client, 400, 'this is no request of HTTP'));
  }

  /** What was reached and refused so far. */
  get use(): NetworkUse {
    return this.#use;
  }

  accept(connection: Duplex): void {
    this.#clients.add(connection);
    connection.once('close', () => this.#clients.delete(connection));
    // HTTP's own listener leaves with a request to CONNECT.
    connection.on('error', () => undefined);
    this.#server.emit('connection', connection);
  }

  /** Ends everything that goes through it. */
  [Symbol.dispose](): void {
    for (const end of [...this.#clients, ...this.#sockets]) end.destroy();
  }

  /** @returns whether the client may have a request; one that has sent it before its last was answered is gone */
  #begins(client: Duplex): boolean {
    if (client.destroyed) return false;
    if (this.#busy.has(client)) client.destroy();
    else this.#busy.add(client);
    return !client.destroyed;
  }

  async #tunnel({ url = '' }: http.IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const target = /^[^/@?#\s]+:\d+$/.test(url) ? targetOf(`https://${url}`, 'https:') : null;
    if (!target) return refuseRaw(client, 400, 'CONNECT takes HOST:PORT');
    const dialled = await this.#dial(target, client);
    if (!('socket' in dialled)) return refuseRaw(client, dialled.status, dialled.message);
    const { socket } = dialled;
    client.write('HTTP/1.1 200 Connection established\r\n\r\n');
    if (head.length > 0) socket.write(head);
    // Each direction ends by itself; one that breaks ends both.
    client.pipe(socket).pipe(client);
    client.once('close', () => isOver(client) || socket.destroy());
    socket.once('close', () => isOver(socket) || client.destroy());
  }

  async #forward(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const { url = '', method = 'GET' } = request;
    const target = targetOf(url, 'http:');
    if (!target) {
      return refuse(response, 400, 'this is a proxy: it takes http:// addresses, and CONNECT for all else');
    }
    const dialled = await this.#dial(target, request.socket);
    if (!('socket' in dialled)) return refuse(response, dialled.status, dialled.message);
    const { socket } = dialled;
    const { host, pathname, search } = new URL(url);
    let trouble = 'no answer';
    response.once('close', () => socket.destroy()).on('error', () => undefined);
    const outgoing = http.request({
      createConnection: () => socket,
      ...{ method, path: pathname + search },
      headers: requestHeaders(request, host),
    });
    outgoing.once('response', (answer) => void answerWith(answer, response));
    outgoing.on('error', ({ message }) => {
      trouble = message;
    });
    outgoing.once('close', () => response.headersSent || refuse(response, 502, `${host}: ${trouble}`));
    // What breaks is told above.
    pipeline(request, outgoing, () => undefined);
  }

  /** @returns a connection to the target, or what the guest's program is told */
  async #dial(target: Target, client: Duplex): Promise<{ socket: Socket } | { status: number; message: string }> {
    const gone = new AbortController();
    const onClose = (): void => gone.abort();
    client.once('close', onClose);
    if (client.destroyed) gone.abort();
    try {
      const socket = await dial(target, this.#reach, gone.signal);
      // A connection that breaks later is closed: who uses it sees that.
      socket.on('error', () => undefined);
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
      this.#use.connected(target, socket);
      this.#onDial({ ...target, error: null, refused: false });
      return { socket };
    } catch (error) {
      // Where several addresses were tried, there is a code and no message.
      const { message: said, code = 'no connection' } = error as NodeJS.ErrnoException;
      const message = said || code;
      const refused = error instanceof TargetRefused;
      if (refused) this.#use.refused(target);
      else this.#use.failed(target);
      this.#onDial({ ...target, error: message, refused });
      return refused ? { status: 403, message } : { status: 502, message: `${target.host}:${target.port}: ${message}` };
    } finally {
      client.off('close', onClose);
    }
  }
}

/** Longer than any name may be: nothing that could be looked up, or that is worth a place in a record. */
const MOST_NAME_CHARS = 253;
const DEFAULT_PORTS = { 'http:': 80, 'https:': 443 } as const;

/** Of an address with this scheme; null where it is none. */
function targetOf(url: string, scheme: keyof typeof DEFAULT_PORTS): Target | null {
  if (!URL.canParse(url)) return null;
  const { protocol, hostname, port } = new URL(url);
  const host = hostname.replace(/\.$/, '');
  if (protocol !== scheme || host === '' || host.length > MOST_NAME_CHARS) return null;
  return { host, port: port === '' ? DEFAULT_PORTS[scheme] : Number(port) };
}

/** A server's answer may be one that no server of ours could give: then there is none. */
function answerWith(answer: http.IncomingMessage, response: http.ServerResponse): void {
  try {
    response.sendDate = false;
    response.writeHead(answer.statusCode ?? 502, answer.statusMessage, passedOn(answer));
  } catch (error) {
    answer.destroy();
    refuse(response, 502, (error as Error).message);
    return;
  }
  pipeline(answer, response, () => undefined);
}

/** The server is told the host that was judged, whatever the guest's header says. */
function requestHeaders(request: http.IncomingMessage, host: string): string[] {
  const chunked = request.headers['transfer-encoding'] === undefined ? [] : ['Transfer-Encoding', 'chunked'];
  return ['Host', host, ...passedOn(request, 'host'), ...chunked, 'Connection', 'close'];
}

/** The headers as they came, in order, without those for this neighbour. */
function passedOn({ rawHeaders, headers }: http.IncomingMessage, ...others: string[]): string[] {
  const left = new Set([...others, ...(headers.connection ?? '').toLowerCase().split(/[\s,]+/)]);
  const passed: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const [name = '', value = ''] = rawHeaders.slice(at, at + 2);
    if (!HOP_BY_HOP.has(name.toLowerCase()) && !left.has(name.toLowerCase())) passed.push(name, value);
  }
  return passed;
}

const lineOf = (message: string): string => `gymbus: ${message}\n`;

function refuse(response: http.ServerResponse, status: number, message: string): void {
  if (response.destroyed || response.headersSent) return void response.destroy();
  const body = lineOf(message);
  response.writeHead(status, {
    'content-type': 'text/plain; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  });
  response.end(body);
}

/** The same where there is no response to write it with. What the client still says is dropped. */
function refuseRaw(client: Duplex, status: number, message: string): void {
  if (client.destroyed || !client.writable) return;
  const body = lineOf(message);
  client.end(
    [
      `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}`,
      'content-type: text/plain; charset=utf-8',
      `content-length: ${Buffer.byteLength(body)}`,
      'connection: close',
      '',
      body,
    ].join('\r\n'),
  );
  client.resume();
}

/** Both of its directions have come to their end: it was closed, and not broken. */
const isOver = (end: Duplex): boolean => end.readableEnded && end.writableFinished;
