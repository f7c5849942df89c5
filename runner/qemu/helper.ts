import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { GuestSilent } from '../../functions/guest.ts';
import { HelperError } from './errors.ts';
import { JsonLines } from './json-lines.ts';
import { Replies } from './replies.ts';

const Reply = z.looseObject({
  id: z.number().nullable(),
  ok: z.boolean(),
  code: z.string().optional(),
  error: z.string().optional(),
});

/** Code of an answer that is none. */
export const NONSENSE = 'EPROTO';

/** What the helper tells without being asked: something in the guest broke that cannot be mended there. */
const Fault = z.object({ fault: z.string().max(64), message: z.string().max(2_000) });

/**
 * Client of the resident helper inside the guest. Requests go out as they come and are answered in any order.
 * A request that got no answer may have been served.
 */
export class HelperClient {
  readonly #lines: JsonLines;
  readonly #replies = new Replies();
  readonly #onFault: (message: string) => void;

  /** @param onFault told what broke in the guest, in words */
  constructor(stream: Duplex, onFault: (message: string) => void = () => undefined) {
    this.#onFault = onFault;
    this.#lines = new JsonLines(
      stream,
      (value) => this.#take(value),
      (reason) =>
        this.#replies.failAll(new GuestSilent(`the guest's channel is gone: ${reason.message}`, { cause: reason })),
    );
    // Ends whatever half line the helper may have read before this end was opened.
    this.#lines.sendRaw('\n');
  }

  get open(): boolean {
    return this.#lines.closed === null;
  }

  /**
   * @throws HelperError the helper said no
   * @throws GuestSilent no answer within the deadline
   */
  async call<T extends z.ZodType>(
    op: string,
    fields: Record<string, unknown>,
    reply: T,
    options: { deadlineMs: number; signal?: AbortSignal | undefined },
  ): Promise<z.infer<T>> {
    if (this.#lines.closed) {
      throw new GuestSilent(`the guest's channel is gone: ${this.#lines.closed.message}`);
    }
    const answer = await this.#replies.request(
      (id) => this.#lines.send({ id, op, ...fields }),
      options.deadlineMs,
      () => new GuestSilent(`the guest did not answer ${op} within ${options.deadlineMs} ms`),
      options.signal,
    );
    const parsed = reply.safeParse(answer);
    if (!parsed.success) {
      const [issue] = parsed.error.issues;
      const where = issue?.path.length ? ` (${issue.path.join('.')})` : '';
      throw new HelperError(NONSENSE, `the guest answered ${op} with something else: ${issue?.message}${where}`);
    }
    return parsed.data;
  }

  async ping(deadlineMs: number, signal?: AbortSignal): Promise<void> {
    await this.call('ping', {}, z.unknown(), { deadlineMs, signal });
  }

  /**
   * Waits for a guest that is still starting: asks again, since bytes sent before its driver is up are lost.
   * @throws GuestSilent after the deadline
   */
  async waitUp(deadlineMs: number, signal: AbortSignal): Promise<void> {
    const end = performance.now() + deadlineMs;
    for (;;) {
      try {
        return await this.ping(1_000, signal);
      } catch (error) {
        if (signal.aborted || this.#lines.closed || performance.now() > end) throw error;
        this.#lines.sendRaw('\n');
      }
    }
  }

  close(): void {
    this.#lines.destroy();
  }

  /** The helper is gone, and with it whatever it was doing. */
  fail(reason: string): void {
    this.#replies.failAll(new GuestSilent(reason));
  }

  #take(value: unknown): boolean {
    const parsed = Reply.safeParse(value);
    if (!parsed.success || parsed.data.id === null) {
      const fault = Fault.safeParse(value);
      if (fault.success) this.#onFault(fault.data.message);
      // Of no use beyond the first: a guest must not flood its host with them.
      return false;
    }
    const { id, ok, code, error } = parsed.data;
    if (ok) return this.#replies.answer(id, value);
    return this.#replies.fail(id, new HelperError(code ?? 'EUNKNOWN', error ?? 'the guest gave no reason'));
  }
}
