import { type MsgHdrs, headers as newHeaders } from '@nats-io/transport-node';
import { cutMessage, HEADERS } from '../../schemas/index.ts';
import type { Bus } from './index.ts';
import type { JobMessage } from './pull.ts';
import { answered, lastStored, type Patience, REQUEST_MS, untilAnswered } from './stored.ts';

export interface DeadLetter {
  class: string;
  /** In plain words; line breaks become spaces, and what is too long is cut. */
  reason: string;
  attempts: number;
}

const MESSAGE_ID = 'Nats-Msg-Id';

/**
 * Keeps the original bytes of a job that cannot run, with its headers and why. Idempotent: the same message of the jobs
 * stream is kept once, however often and by however many it is put.
 * @throws the signal's reason when the bus stays away until then
 */
export function putDeadLetter(bus: Bus, message: JobMessage, letter: DeadLetter, patience?: Patience): Promise<void> {
  const { address, seq } = message;
  const subject = bus.names.deadSubject(address);
  const id = `${address.batch}/${address.job}/dead/${seq}`;
  const headers = deadHeaders(message.headers, id, letter);
  return untilAnswered(
    bus,
    'dead letter',
    async () => {
      // The server remembers ids for minutes; a redelivered job may bring its letter again after an hour.
      const last = await lastStored(bus, bus.names.deadStream, subject);
      if (last?.headers.get(MESSAGE_ID) === id) return;
      await answered(bus, () => bus.js.publish(subject, message.data, { headers, timeout: REQUEST_MS }));
    },
    patience,
  );
}

function deadHeaders(original: MsgHdrs | undefined, id: string, letter: DeadLetter): MsgHdrs {
  const headers = newHeaders();
  for (const [name, values] of original ?? []) {
    // The server's own would be obeyed again: an expected sequence, a schedule, a time to live.
    if (/^nats-/i.test(name)) continue;
    for (const value of values) headers.append(name, value);
  }
  headers.set(MESSAGE_ID, id);
  headers.set(HEADERS.reason, cutMessage(letter.reason.replaceAll(/\s+/g, ' ').trim()));
  headers.set(HEADERS.class, letter.class);
  headers.set(HEADERS.attempts, String(letter.attempts));
  return headers;
}
