import { EventEmitter } from 'node:events';
import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { QmpError, QmpSilent } from './errors.ts';
import { JsonLines } from './json-lines.ts';
import { Replies } from './replies.ts';

const Message = z.union([
  z.object({ QMP: z.object({}) }),
  z.object({ return: z.unknown(), id: z.number() }),
  z.object({ error: z.object({ class: z.string(), desc: z.string() }), id: z.number().optional() }),
  z.object({ event: z.string(), data: z.record(z.string(), z.unknown()).default({}) }),
]);

export interface QmpEvent {
  name: string;
  data: Record<string, unknown>;
}

/** QEMU's main loop answers within milliseconds; more means a wedged or starved process. */
const DEFAULT_DEADLINE_MS = 10_000;
const MOST_REASON_CHARS = 2_000;

/**
 * QEMU's control channel. Commands may be sent before QEMU is up and without waiting for one another: it runs them in order.
 * Emits `event` for each of QEMU's events, `close` once.
 */
export class QmpClient extends EventEmitter<{ event: [QmpEvent]; close: [Error] }> {
  readonly #lines: JsonLines;
  readonly #replies = new Replies();

  constructor(stream: Duplex) {
    super();
    this.setMaxListeners(32);
    this.#lines = new JsonLines(
      stream,
      (value) => this.#take(value),
      (reason) => {
        this.#replies.failAll(new QmpSilent(`qemu's control channel is gone: ${reason.message}`, { cause: reason }));
        this.emit('close', reason);
      },
    );
  }

  get open(): boolean {
    return this.#lines.closed === null;
  }

  /** The first command of a connection: QEMU refuses every other before it. */
  negotiate(deadlineMs: number, signal: AbortSignal): Promise<unknown> {
    return this.execute('qmp_capabilities', undefined, { deadlineMs, signal });
  }

  /**
   * @throws QmpError QEMU said no
   * @throws QmpSilent no answer: it may have been done
   */
  async execute<T = unknown>(
    command: string,
    args?: Record<string, unknown>,
    options: { deadlineMs?: number; signal?: AbortSignal } = {},
  ): Promise<T> {
    if (this.#lines.closed) {
      throw new QmpSilent(`qemu's control channel is gone: ${this.#lines.closed.message}`);
    }
    const deadlineMs = options.deadlineMs ?? DEFAULT_DEADLINE_MS;
    const answer = await this.#replies.request(
      (id) =>
        this.#lines.send(args === undefined ? { execute: command, id } : { execute: command, arguments: args, id }),
      deadlineMs,
      () => new QmpSilent(`qemu did not answer ${command} within ${deadlineMs} ms`),
      options.signal,
    );
    return answer as T;
  }

  /** Resolves with the first event that matches. @throws QmpSilent after the deadline or when the channel closes */
  next(matches: (event: QmpEvent) => boolean, deadlineMs: number, what: string): Promise<QmpEvent> {
    return new Promise((resolve, reject) => {
      const finish = (settle: () => void): void => {
        clearTimeout(timer);
        this.off('event', onEvent);
        this.off('close', onClose);
        settle();
      };
      const onEvent = (event: QmpEvent): void => {
        if (matches(event)) finish(() => resolve(event));
      };
      const onClose = (reason: Error): void =>
        finish(() => reject(new QmpSilent(`qemu went away before ${what}: ${reason.message}`, { cause: reason })));
      const timer = setTimeout(
        () => finish(() => reject(new QmpSilent(`no sign of ${what} within ${deadlineMs} ms`))),
        deadlineMs,
      );
      this.on('event', onEvent);
      this.on('close', onClose);
    });
  }

  close(): void {
    this.#lines.destroy();
  }

  /** @returns whether it was an answer that somebody waits for; QEMU has few events to tell of between two of them */
  #take(value: unknown): boolean {
    const parsed = Message.safeParse(value);
    if (!parsed.success) return false;
    const message = parsed.data;
    if ('return' in message) return this.#replies.answer(message.id, message.return);
    if ('event' in message) this.emit('event', { name: message.event, data: message.data });
    else if ('error' in message) {
      const error = new QmpError(`qemu: ${message.error.desc.slice(0, MOST_REASON_CHARS)}`);
      if (message.id !== undefined) return this.#replies.fail(message.id, error);
      // An error without an id answers a line QEMU could not read: whichever request that was, none will be answered.
      this.#replies.failAll(error);
    }
    return false;
  }
}
