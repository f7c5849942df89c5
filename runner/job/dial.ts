import { once } from 'node:events';
import { connect, isIP, type Socket } from 'node:net';
import { isPrivateAddress } from '../../functions/download/address.ts';
import { guardedLookup, type Lookup } from '../../functions/download/lookup.ts';
import { includesHost, shown } from '../../functions/network/hosts.ts';

/** What a guest's program wants to reach. */
export interface Target {
  /** A name or an IPv4 address, in lower case. */
  host: string;
  port: number;
}

/** What this job may reach. */
export interface Reach {
  /** As the job asked for them. */
  hosts: readonly string[];
  /** Whether loopback, private, link-local and this host's own addresses may be reached. */
  allowPrivate: boolean;
  /** Finds the addresses of a name; by default the system does. */
  lookup?: Lookup;
}

/** The job, or this host, does not allow it. */
export class TargetRefused extends Error {
  override readonly name = 'TargetRefused';
}

/** A server that does not answer: systems themselves try for two minutes, and a browser's user has gone by then. */
const CONNECT_MS = 15_000;
/** A connection that nothing has gone over for so long is forgotten by most networks, too. */
const IDLE_MS = 300_000;

/**
 * Connects to what a guest asks for, if its job may reach that.
 * @throws TargetRefused; the system's errors, and one of its own when nothing answers in time
 */
export async function dial(target: Target, reach: Reach, signal: AbortSignal): Promise<Socket> {
  const { host, port } = target;
  const { hosts, allowPrivate } = reach;
  if (!includesHost(hosts, host, port)) {
    throw new TargetRefused(
      `this job may not reach ${host}:${port}, its network.hosts are ${shown(hosts)}; name it there, if the policy of the image allows it`,
    );
  }
  const refused = (addresses: string): TargetRefused =>
    new TargetRefused(
      `${host} leads to ${addresses}, which is the runner's host's or a private network's: jobs reach public addresses alone, unless the runner has GYMBUS_DOWNLOAD_PRIVATE=yes`,
    );
  // Sockets ask for no look-up when the host is an address already.
  if (isIP(host) !== 0 && !allowPrivate && isPrivateAddress(host)) throw refused(host);
  // A program may say all it has to say, and then still be answered.
  const lookup = guardedLookup(allowPrivate, refused, reach.lookup);
  const socket = connect({ host, port, allowHalfOpen: true, lookup });
  socket.setTimeout(CONNECT_MS, () => socket.destroy(new Error(`no connection within ${CONNECT_MS / 1_000} s`)));
  try {
    await once(socket, 'connect', { signal });
  } catch (error) {
    // Whatever else it has to say is not heard any more.
    socket.on('error', () => undefined).destroy();
    throw error;
  }
  socket.removeAllListeners('timeout');
  socket.setTimeout(IDLE_MS, () => socket.destroy());
  return socket.setNoDelay(true);
}
