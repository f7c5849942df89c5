import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { type JetStreamManager, jetstreamManager } from '@nats-io/jetstream';
import {
  AuthorizationError,
  type ConnectionOptions,
  connect,
  InvalidArgumentError,
  type NatsConnection,
  UserAuthenticationExpiredError,
} from '@nats-io/transport-node';
import type { Logger } from 'pino';
import { BusRefused, BusUnreachable, explainDenied } from './errors.ts';
import { guardCallbacks } from './guard.ts';
import { credentialsOf, tlsOptions } from './trust.ts';

/** Who we are to the server. Never logged. Without any, user and password may stand in the URL. */
interface BusCredentials {
  /** File with a JWT and its seed; read again at each reconnection, so that it may be replaced. */
  credentialsFile?: string | undefined;
  user?: string | undefined;
  password?: string | undefined;
  token?: string | undefined;
  /** File with the certificate authority of the servers. */
  caFile?: string | undefined;
}

export interface ConnectSettings extends BusCredentials {
  /** `nats://host:port`, `tls://host:port` or `host:port`, each with optional `user:password@` or `token@`. */
  servers: readonly string[];
  /** Shown by the server's monitoring. */
  name: string;
  log: Logger;
  /** Ends the wait for a first connection. */
  signal?: AbortSignal | undefined;
  /** How long to wait for a server that is not there; without it for ever. 0 tries once. */
  patienceMs?: number | undefined;
}

/** Per-subject discard, per-message TTLs, confirmed terms and async persistence together need this much. */
const MINIMUM_SERVER = [2, 12] as const;
/** One handshake; a healthy server takes milliseconds. */
const HANDSHAKE_MS = 5_000;
const RETRY_MS = 500;
/** How often a wait for the server is told. */
const TELL_MS = 5_000;
/** Two missed pings end a dead connection in 10 to 15 s: half an ack_wait is left to connect again and beat. */
const PING_MS = 5_000;
const MISSED_PINGS = 2;
/** The longest that the server can have been silent when a connection is found dead. */
export const SILENCE_MS = (MISSED_PINGS + 1) * PING_MS;

/**
 * Connects, waiting for a server that is not there and saying so every 5 s; afterwards the client reconnects for ever.
 * @throws BusRefused on a server that is too old, has no JetStream, or refuses the credentials
 * @throws BusUnreachable after `patienceMs`; the signal's reason on abort
 */
export async function connectBus(settings: ConnectSettings): Promise<{ nc: NatsConnection; jsm: JetStreamManager }> {
  const { log, signal } = settings;
  const options = connectionOptions(settings);
  const shown = options.servers.join(', ');
  const startedAt = performance.now();
  let toldAt = Number.NEGATIVE_INFINITY;
  for (;;) {
    signal?.throwIfAborted();
    try {
      const nc = guardCallbacks(await connect(options), log);
      try {
        return { nc, jsm: await checkServer(nc) };
      } catch (error) {
        await nc.close();
        throw error;
      }
    } catch (error) {
      if (error instanceof BusRefused) throw error;
      const refusal = explainRefusal(error, shown);
      if (refusal) throw refusal;
      const waitedMs = performance.now() - startedAt;
      if (settings.patienceMs !== undefined && waitedMs >= settings.patienceMs) {
        throw new BusUnreachable(
          `no NATS server answers at ${shown} (${messageOf(error)}); start one, or set NATS_URL to where it runs`,
          { cause: error },
        );
      }
      if (performance.now() - toldAt >= TELL_MS) {
        toldAt = performance.now();
        log.warn(
          { servers: shown, cause: messageOf(error), waited_s: Math.round(waitedMs / 1000) },
          'no NATS server answers; waiting for it (NATS_URL says where it is looked for)',
        );
      }
      await sleep(RETRY_MS, undefined, signal ? { signal } : {}).catch(() => signal?.throwIfAborted());
    }
  }
}

async function checkServer(nc: NatsConnection): Promise<JetStreamManager> {
  const version = nc.info?.version ?? 'unknown';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [minMajor, minMinor] = MINIMUM_SERVER;
  if (!(major > minMajor || (major === minMajor && minor >= minMinor))) {
    throw new BusRefused(
      `nats-server at ${nc.getServer()} is version ${version}; gymbus needs ${MINIMUM_SERVER.join('.')} or newer, ` +
        'for an older one silently ignores what delivery rests on. Upgrade it (go install github.com/nats-io/nats-server/v2@latest) or point NATS_URL elsewhere',
    );
  }
  if (!nc.info?.jetstream) {
    throw new BusRefused(
      `nats-server ${version} at ${nc.getServer()} runs without JetStream; start it with -js, or with a jetstream block in its configuration`,
    );
  }
  try {
    return await jetstreamManager(nc);
  } catch (error) {
    if (error instanceof Error && error.name === 'JetStreamNotEnabled') {
      throw new BusRefused(
        `JetStream is not enabled for this account on ${nc.getServer()}; enable it in the account's configuration, or use an account that has it`,
        { cause: error },
      );
    }
    throw error;
  }
}

function connectionOptions(settings: ConnectSettings): ConnectionOptions & { servers: string[] } {
  const parsed = settings.servers.map(parseServer);
  const inUrl = parsed.find((server) => server.user !== undefined || server.token !== undefined);
  const user = settings.user ?? inUrl?.user;
  const password = settings.password ?? inUrl?.password;
  const token = settings.token ?? inUrl?.token;
  const { credentialsFile, caFile } = settings;
  const options: ConnectionOptions & { servers: string[] } = {
    servers: parsed.map((server) => server.address),
    name: settings.name,
    timeout: HANDSHAKE_MS,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RETRY_MS,
    pingInterval: PING_MS,
    maxPingOut: MISSED_PINGS,
    // Credentials may be replaced while we run: a refused reconnection is no reason to give up for good.
    ignoreAuthErrorAbort: true,
    noAsyncTraces: true,
  };
  if (credentialsFile !== undefined) {
    options.authenticator = credentialsOf(credentialsFile, settings.log);
  } else if (user !== undefined) {
    options.user = user;
    if (password !== undefined) options.pass = password;
  } else if (token !== undefined) {
    options.token = token;
  }
  if (caFile !== undefined || parsed.some((server) => server.tls)) {
    options.tls = tlsOptions(
      caFile,
      parsed.map(({ address }) => address.replace(/:\d+$/, '').replace(/^\[|\]$/g, '')),
    );
  }
  return options;
}

interface Server {
  address: string;
  tls: boolean;
  user?: string;
  password?: string;
  token?: string;
}

/** @throws BusRefused when it is no address */
export function parseServer(text: string): Server {
  let url: URL;
  try {
    url = new URL(/^[a-z]+:\/\//i.test(text) ? text : `nats://${text}`);
  } catch (error) {
    throw new BusRefused(`NATS server address ${JSON.stringify(withoutSecret(text))} is none; write nats://host:port`, {
      cause: error,
    });
  }
  if (url.hostname === '') {
    throw new BusRefused(
      `NATS server address ${JSON.stringify(withoutSecret(text))} names no host; write nats://host:port`,
    );
  }
  if (url.protocol !== 'nats:' && url.protocol !== 'tls:') {
    throw new BusRefused(
      `NATS server address ${withoutSecret(text)} begins with ${url.protocol}//; write nats://host:port or tls://host:port`,
    );
  }
  const server: Server = { address: `${url.hostname}:${url.port || '4222'}`, tls: url.protocol === 'tls:' };
  if (url.username !== '' && url.password !== '') {
    server.user = decoded(url.username, text);
    server.password = decoded(url.password, text);
  } else if (url.username !== '') {
    server.token = decoded(url.username, text);
  }
  return server;
}

function decoded(part: string, address: string): string {
  try {
    return decodeURIComponent(part);
  } catch (error) {
    throw new BusRefused(
      `NATS server address ${withoutSecret(address)} has a % in its credentials that escapes nothing; write %25 for it`,
      { cause: error },
    );
  }
}

function withoutSecret(text: string): string {
  return text.replace(/^([a-z]+:\/\/)?.*@/i, '$1(secret)@');
}

function explainRefusal(error: unknown, servers: string): BusRefused | null {
  if (error instanceof AuthorizationError || error instanceof UserAuthenticationExpiredError) {
    return new BusRefused(
      `nats-server at ${servers} refuses these credentials (${error.message}); check NATS_CREDS, NATS_USER and NATS_PASSWORD, or the user in NATS_URL`,
      { cause: error },
    );
  }
  const said = messageOf(error);
  const certificate = `the certificate of nats-server at ${servers}`;
  const remedy = [
    {
      of: /altnames/i,
      is: 'is for another name',
      remedy: 'give NATS_URL a name that is in it, or the server a certificate with this one',
    },
    {
      of: /expired|not yet valid/i,
      is: 'is not valid now',
      remedy: "renew it, or set this machine's clock if that is wrong (NTP)",
    },
    { of: /certificate/i, is: 'is not trusted', remedy: 'set NATS_CA to the file of its certificate authority' },
  ].find(({ of }) => of.test(said));
  if (remedy) return new BusRefused(`${certificate} ${remedy.is} (${said}); ${remedy.remedy}`, { cause: error });
  if (/does not support 'tls'/.test(said)) {
    return new BusRefused(
      `nats-server at ${servers} speaks no TLS; turn it on there, or leave out NATS_CA and write nats:// in NATS_URL`,
      { cause: error },
    );
  }
  if (error instanceof InvalidArgumentError) {
    return new BusRefused(`the NATS settings are wrong: ${error.message}`, { cause: error });
  }
  return explainDenied(error);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
