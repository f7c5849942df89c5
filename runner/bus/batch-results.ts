import { DeliverPolicy } from '@nats-io/jetstream';
import { Result } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import { answered } from './stored.ts';

/** Results read at a time; each is about a kilobyte. */
const PAGE = 500;
const PAGE_MS = 10_000;

/**
 * The committed outcome of every job of a batch, in the order of their commits.
 * Messages that are no results are left out and logged.
 */
export async function* batchResults(bus: Bus, batch: string): AsyncGenerator<Result> {
  const consumer = await answered(bus, () =>
    bus.js.consumers.get(bus.names.resultsStream, {
      filter_subjects: [bus.names.resultSubject(batch, '*')],
      deliver_policy: DeliverPolicy.LastPerSubject,
    }),
  );
  let left = (await answered(bus, () => consumer.info())).num_pending;
  while (left > 0) {
    const page = await consumer.fetch({ max_messages: Math.min(PAGE, left), expires: PAGE_MS });
    const before = left;
    for await (const message of page) {
      left = message.info.pending;
      const parsed = Result.safeParse(parseJson(message.string()));
      if (parsed.success) yield parsed.data;
      else bus.log.warn({ subject: message.subject, seq: message.seq }, 'message is no result');
    }
    if (left === before) throw new Error(`NATS gave none of ${left} results within ${PAGE_MS} ms`);
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
