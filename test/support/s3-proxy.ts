import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/** What goes wrong with one request. */
export type Fault =
  /** Answered without asking the server. */
  | { kind: 'status'; status: number; code: string }
  /** Forwarded after a while. */
  | { kind: 'delay'; ms: number }
  /** Forwarded when the promise resolves, if ever. */
  | { kind: 'hold'; until: Promise<unknown> }
  /** The connection breaks when so many bytes of the body have been forwarded. */
  | { kind: 'cut_request'; afterBytes: number }
  /** The server does what it is asked, and its answer is lost. */
  | { kind: 'lose_answer' }
  /** The connection breaks when so many bytes of the answer's body have come. */
  | { kind: 'cut_answer'; afterBytes: number }
  /** A byte of the body changes on the way. */
  | { kind: 'corrupt' };

export interface SeenRequest {
  method: string;
  /** Path and query. */
  path: string;
  /** What the client was answered; null when the connection broke. */
  status: number | null;
}

export interface S3Proxy extends AsyncDisposable {
  endpoint: string;
  /** Every request that came, in order. */
  seen: SeenRequest[];
  /** Most requests under way at once. */
  mostAtOnce: number;
  /** Asked for each request; `undefined` forwards it as it is. */
  rule: (request: SeenRequest) => Fault | undefined;
}

/** An HTTP server before an S3 server that spoils what it is told to. Signatures stay valid: the Host header is forwarded. */
export async function startS3Proxy(upstreamPort: number): Promise<S3Proxy> {
  let atOnce = 0;
  const server = createServer((incoming, outgoing) => {
    const seen: SeenRequest = { method: incoming.method ?? '', path: incoming.url ?? '', status: null };
    proxy.seen.push(seen);
    proxy.mostAtOnce = Math.max(proxy.mostAtOnce, ++atOnce);
    outgoing.once('close', () => atOnce--);
    incoming.on('error', () => {});
    outgoing.on('error', () => {});
    serve(incoming, outgoing, seen, proxy.rule(seen), upstreamPort).catch(() => outgoing.destroy());
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port');
  const proxy: S3Proxy = {
    endpoint: `http://127.0.0.1:${address.port}`,
    seen: [],
    mostAtOnce: 0,
    rule: () => undefined,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}

async function serve(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  seen: SeenRequest,
  fault: Fault | undefined,
  port: number,
): Promise<void> {
  if (fault?.kind === 'status') {
    incoming.resume();
    await once(incoming, 'close');
    seen.status = fault.status;
    outgoing.writeHead(fault.status, { 'content-type': 'application/xml' });
    outgoing.end(`<?xml version="1.0"?><Error><Code>${fault.code}</Code><Message>so the test says</Message></Error>`);
    return;
  }
  if (fault?.kind === 'delay') await sleep(fault.ms);
  if (fault?.kind === 'hold') await fault.until;
  if (outgoing.destroyed) return;
  const upstream = request({
    host: '127.0.0.1',
    port,
    method: incoming.method,
    path: incoming.url,
    headers: incoming.headers,
    agent: false,
  });
  upstream.on('error', () => outgoing.destroy());
  outgoing.once('close', () => upstream.destroy());
  upstream.once('response', (answer) => {
    if (fault?.kind === 'lose_answer') {
      answer.resume().once('end', () => outgoing.destroy());
      return;
    }
    seen.status = answer.statusCode ?? null;
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    let passed = 0;
    answer.on('data', (chunk: Buffer) => {
      const rest = fault?.kind === 'cut_answer' ? chunk.subarray(0, fault.afterBytes - passed) : chunk;
      passed += rest.byteLength;
      outgoing.write(rest, () => {
        if (rest.byteLength < chunk.byteLength) outgoing.destroy();
      });
    });
    answer.once('end', () => outgoing.end());
    answer.once('error', () => outgoing.destroy());
  });
  let forwarded = 0;
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    const bytes = Buffer.from(chunk);
    if (fault?.kind === 'corrupt' && forwarded === 0) bytes[0] = (bytes[0] ?? 0) ^ 1;
    if (fault?.kind === 'cut_request' && forwarded + bytes.byteLength >= fault.afterBytes) {
      upstream.write(bytes.subarray(0, fault.afterBytes - forwarded));
      // What was forwarded reaches the server before the end does.
      await sleep(20);
      upstream.destroy();
      outgoing.destroy();
      return;
    }
    forwarded += bytes.byteLength;
    upstream.write(bytes);
  }
  upstream.end();
}
