import type { Logger } from 'pino';
import type { HostUse } from '../../schemas/index.ts';
import type { Replica } from '../replica/contract.ts';
import type { Reach } from './dial.ts';
import { PartFailed } from './part-failed.ts';
import { type Dialled, WebProxy } from './web-proxy.ts';

/** A guest may ask without end; the totals go on. */
const MOST_LINES = 200;

/** The network of one attempt: what its job asked for, and a record of what was done with it. */
export class AttemptNetwork implements Disposable {
  readonly #replica: Replica;
  readonly #proxy: WebProxy;
  readonly #log: Logger;
  #lines = 0;
  #ended = false;

  /** @param log of the attempt */
  constructor(replica: Replica, reach: Reach, log: Logger) {
    this.#replica = replica;
    this.#log = log;
    this.#proxy = new WebProxy(reach, (dialled) => this.#note(dialled));
  }

  /** Before anything runs in the guest. @throws PartFailed of class `guest`, or the signal's reason */
  async open(signal: AbortSignal): Promise<void> {
    const end = {
      accept: this.#proxy.accept.bind(this.#proxy),
      closed: (reason: string) => {
        if (!this.#ended) this.#log.warn({ reason }, 'the guest has no network any more');
      },
    };
    try {
      await this.#replica.openNetwork(end, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw new PartFailed('guest', `opening the network: ${(error as Error).message}`, error);
    }
  }

  use(): HostUse[] {
    return this.#proxy.use.read();
  }

  [Symbol.dispose](): void {
    this.#ended = true;
    this.#proxy[Symbol.dispose]();
  }

  #note({ host, port, error, refused }: Dialled): void {
    this.#lines += 1;
    if (this.#lines > MOST_LINES) return;
    const said = this.#lines === MOST_LINES ? 'connection; those after it are counted only' : 'connection';
    this.#log.info({ host, port, ...(error === null ? {} : { error, refused }) }, said);
  }
}
