import type { Socket } from 'node:net';
import type { HostUse } from '../../schemas/index.ts';
import type { Target } from './dial.ts';

/** Hosts that are told apart; a guest may ask for as many as it likes, and the record is part of a message. */
const MOST_HOSTS = 64;
const OTHERS = { host: '(others)', port: 0 };

interface Row extends Target {
  connections: number;
  refused: number;
  failed: number;
  sent: number;
  received: number;
  /** Whose bytes are not counted yet. */
  open: Set<Socket>;
}

/** What a guest does with its network, in totals by host and port. */
export class NetworkUse {
  readonly #rows = new Map<string, Row>();

  refused(target: Target): void {
    this.#row(target).refused += 1;
  }

  failed(target: Target): void {
    this.#row(target).failed += 1;
  }

  /** @param socket to the host, just connected */
  connected(target: Target, socket: Socket): void {
    const row = this.#row(target);
    row.connections += 1;
    row.open.add(socket);
    socket.once('close', () => {
      row.open.delete(socket);
      row.sent += socket.bytesWritten;
      row.received += socket.bytesRead;
    });
  }

  /** In the order in which hosts were first asked for. */
  read(): HostUse[] {
    return [...this.#rows.values()].map(({ host, port, connections, refused, failed, sent, received, open }) => ({
      ...{ host, port, connections, refused, failed },
      sent_bytes: [...open].reduce((sum, { bytesWritten }) => sum + bytesWritten, sent),
      received_bytes: [...open].reduce((sum, { bytesRead }) => sum + bytesRead, received),
    }));
  }

  #row({ host, port }: Target): Row {
    const key = `${host}:${port}`;
    const known = this.#rows.get(key);
    if (known) return known;
    if (this.#rows.size >= MOST_HOSTS - 1 && host !== OTHERS.host) return this.#row(OTHERS);
    const row = { host, port, connections: 0, refused: 0, failed: 0, sent: 0, received: 0, open: new Set<Socket>() };
    this.#rows.set(key, row);
    return row;
  }
}
