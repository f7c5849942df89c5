import { setMaxListeners } from 'node:events';
import { performance } from 'node:perf_hooks';
import { type JetStreamClient, type JetStreamManager, jetstream } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import type { Logger } from 'pino';
import { type BusNames, busNames } from '../../schemas/index.ts';
import { type ConnectSettings, connectBus, SILENCE_MS } from './connection.ts';

/** What a connection made anew tells of the one that was lost. */
export interface Reconnection {
  /** The earliest moment at which the old one can have been lost, in monotonic milliseconds: until then its server lived. */
  lostAtMs: number;
  /** The very process as before answers: it has forgotten nothing. */
  sameServer: boolean;
}

/** An open connection to the bus and its names; every function of this folder takes one. */
export interface Bus extends AsyncDisposable {
  readonly nc: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly names: BusNames;
  readonly log: Logger;
  /** False while the client looks for a server. What is published then is sent later or never. */
  readonly connected: boolean;
  /** Aborted when the present connection is lost: what was asked on it will not be answered. A new one with each connection. */
  readonly connection: AbortSignal;
  /** Calls back after each reconnection, when whatever was announced meanwhile has been missed. @returns how to stop it */
  onReconnect(callback: (reconnection: Reconnection) => void): () => void;
}

export interface BusSettings extends ConnectSettings {
  /** First token of all subjects; `gymbus` by default. */
  prefix?: string | undefined;
}

/**
 * Opens the bus: waits for a server, see `connectBus`. Streams are not made here: `ensureStreams` does.
 * @throws BusRefused, BusUnreachable, or the signal's reason
 */
export async function openBus(settings: BusSettings): Promise<Bus> {
  const names = busNames(settings.prefix);
  const { nc, jsm } = await connectBus(settings);
  return new OpenBus(nc, jsm, names, settings.log);
}

class OpenBus implements Bus {
  readonly nc: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly names: BusNames;
  readonly log: Logger;
  #connection = newConnection();
  readonly #onReconnect = new Set<(reconnection: Reconnection) => void>();
  readonly #watching: Promise<void>;

  constructor(nc: NatsConnection, jsm: JetStreamManager, names: BusNames, log: Logger) {
    this.nc = nc;
    this.js = jetstream(nc);
    this.jsm = jsm;
    this.names = names;
    this.log = log;
    this.#watching = this.#watch();
  }

  get connected(): boolean {
    return !this.#connection.signal.aborted && !this.nc.isClosed();
  }

  get connection(): AbortSignal {
    return this.#connection.signal;
  }

  onReconnect(callback: (reconnection: Reconnection) => void): () => void {
    this.#onReconnect.add(callback);
    return () => this.#onReconnect.delete(callback);
  }

  async #watch(): Promise<void> {
    let server = this.nc.info?.server_id;
    let lostAtMs = performance.now();
    let silentMs = 0;
    for await (const status of this.nc.status()) {
      // Both are told again of each connection that the server ends before it may be used.
      if (status.type === 'disconnect' && this.connected) {
        lostAtMs = performance.now() - silentMs;
        silentMs = 0;
        this.#connection.abort();
        this.log.warn({ server: status.server }, 'connection to NATS lost; reconnecting');
      } else if (status.type === 'reconnect' && !this.connected) {
        this.#connection = newConnection();
        this.log.info({ server: status.server, version: this.nc.info?.version }, 'connected to NATS again');
        const sameServer = this.nc.info?.server_id === server;
        server = this.nc.info?.server_id;
        for (const callback of this.#onReconnect) callback({ lostAtMs, sameServer });
      } else if (status.type === 'staleConnection') {
        silentMs = SILENCE_MS;
      } else if (status.type === 'error') {
        this.log.warn({ err: status.error }, 'NATS reports an error');
      } else if (status.type === 'ldm') {
        this.log.info({ server: status.server }, 'nats-server is shutting down');
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#onReconnect.clear();
    this.#connection.abort();
    await this.nc.close();
    await this.#watching;
  }
}

/** Every request in flight listens: hundreds are no leak. */
function newConnection(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
