import http from 'node:http';
import https from 'node:https';
import { isIP } from 'node:net';
import pRetry from 'p-retry';
import type { DownloadSettings } from '../contract.ts';
import { Gatherer } from '../gatherer.ts';
import { isPrivateAddress } from './address.ts';
import { guardedLookup } from './lookup.ts';

/** A download that failed; `retryable` when another try may do. The message names the address without query or password. */
class DownloadError extends Error {
  override readonly name = 'DownloadError';
  readonly retryable: boolean;
  constructor(message: string, options: { retryable: boolean; cause?: unknown }) {
    super(message, 'cause' in options ? { cause: options.cause } : {});
    this.retryable = options.retryable;
  }
}

/** OSWorld's number of tries for a file. */
const TRIES = 3;
const FIRST_PAUSE_MS = 500;
/** A server that sends nothing for this long is gone; the set-up's own limit bounds the whole. */
const IDLE_MS = 30_000;
/** As many as browsers' libraries commonly follow before they call it a loop. */
const MAX_REDIRECTS = 10;

/**
 * Fetches a file over HTTP or HTTPS into memory, following redirects; reads are tried three times. It takes its own size of
 * memory, at most `maxBytes`; one whose server does not tell its size, half as much again while it grows.
 * Every address is judged when it is connected to, each redirect anew: a name that turns private is refused.
 * @throws DownloadError, or the signal's reason
 */
export function download(url: string, settings: DownloadSettings, signal: AbortSignal): Promise<Buffer> {
  return pRetry(() => follow(url, settings, signal), {
    retries: TRIES - 1,
    minTimeout: FIRST_PAUSE_MS,
    signal,
    shouldRetry: ({ error }) => error instanceof DownloadError && error.retryable,
  });
}

async function follow(start: string, settings: DownloadSettings, signal: AbortSignal): Promise<Buffer> {
  let url = new URL(start);
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects++) {
    const answer = await request(url, settings, signal);
    if (answer.body) return answer.body;
    try {
      url = new URL(answer.location, url);
    } catch (error) {
      throw new DownloadError(`${shown(url)} redirects to what is no address`, { retryable: false, cause: error });
    }
  }
  throw new DownloadError(`${start.split('?')[0]} redirects more than ${MAX_REDIRECTS} times`, { retryable: false });
}

type Answer = { body: Buffer } | { body: null; location: string };

function request(url: URL, settings: DownloadSettings, signal: AbortSignal): Promise<Answer> {
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw new DownloadError(`${shown(url)}: only http and https are fetched`, { retryable: false });
  }
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // Sockets ask for no look-up when the host is an address already.
  if (isIP(host) !== 0 && !settings.allowPrivate && isPrivateAddress(host)) throw refused(url, host);

  return new Promise((resolve, reject) => {
    const fail = (error: unknown): void => {
      if (signal.aborted) reject(signal.reason);
      else if (error instanceof DownloadError) reject(error);
      else reject(new DownloadError(`${shown(url)}: ${(error as Error).message}`, { retryable: true, cause: error }));
    };
    const client = url.protocol === 'https:' ? https : http;
    const outgoing = client.get(
      url,
      {
        agent: false,
        signal,
        lookup: guardedLookup(settings.allowPrivate, (addresses) => refused(url, addresses)),
        headers: { 'accept-encoding': 'identity', 'user-agent': 'gymbus' },
      },
      (response) => {
        receive(url, response, settings.maxBytes)
          .then(resolve, fail)
          .finally(() => outgoing.destroy());
      },
    );
    outgoing.setTimeout(IDLE_MS, () => outgoing.destroy(new Error(`nothing was sent for ${IDLE_MS / 1_000} s`)));
    outgoing.on('error', fail);
  });
}

async function receive(url: URL, response: http.IncomingMessage, maxBytes: number): Promise<Answer> {
  const status = response.statusCode ?? 0;
  const location = response.headers.location;
  if ([301, 302, 303, 307, 308].includes(status) && location) return { body: null, location };
  if (status !== 200) {
    const retryable = status >= 500 || status === 408 || status === 429;
    throw new DownloadError(`${shown(url)} answered ${status} ${response.statusMessage ?? ''}`.trimEnd(), {
      retryable,
    });
  }
  const tooLarge = (): DownloadError =>
    new DownloadError(`${shown(url)} is larger than the ${maxBytes} bytes this host fetches`, { retryable: false });
  const announced = Number(response.headers['content-length'] ?? 0);
  if (announced > maxBytes) throw tooLarge();
  const body = new Gatherer(announced);
  for await (const chunk of response as AsyncIterable<Buffer>) {
    if (body.bytes + chunk.length > maxBytes) throw tooLarge();
    body.add(chunk);
  }
  return { body: body.whole() };
}

function refused(url: URL, addresses: string): DownloadError {
  return new DownloadError(
    `${shown(url)} leads to ${addresses}, which is this host's or a private network's: jobs may not reach it; put the file under the batch's inputs`,
    { retryable: false },
  );
}

/** Queries and passwords of addresses are often secrets. */
function shown(url: URL): string {
  return `${url.protocol}//${url.host}${url.pathname}`;
}
