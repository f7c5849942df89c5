import { type Msg, type MsgHdrs, headers as newHeaders } from '@nats-io/transport-node';

/*
 * The client reads a message's headers when they are asked for, and throws at a name or a value that it would not write
 * itself; the server looks at neither, so a publisher decides. All headers are read here.
 */

/** `problem` says why they cannot be read, for the job's publisher. */
export type HeadersRead = { headers: MsgHdrs | undefined; problem: null } | { headers: undefined; problem: string };

/**
 * As much as HTTP's servers commonly take; a job's own are some hundred bytes. For each header the client looks through
 * all before it: 10,000 of them, which fit into 64 KiB, take it more than a second.
 */
const MOST_BYTES = 8 * 1024;

/** Never throws, whatever was published. */
export function readHeaders(message: Msg): HeadersRead {
  const bytes = sizeOf(message);
  if (bytes > MOST_BYTES) {
    return { headers: undefined, problem: `they have ${bytes} bytes, at most ${MOST_BYTES} are read` };
  }
  return read(() => message.headers);
}

/** Those of a stored message; none where they cannot be read. */
export function readStoredHeaders(stored: { header: MsgHdrs }): MsgHdrs {
  return read(() => stored.header).headers ?? newHeaders();
}

/** Of the headers, in bytes. The client's messages know their whole size, which their type does not tell. */
function sizeOf(message: Msg & { size?: () => number }): number {
  const { subject, reply = '', data } = message;
  return (message.size?.() ?? 0) - data.length - Buffer.byteLength(subject) - Buffer.byteLength(reply);
}

function read(decode: () => MsgHdrs | undefined): HeadersRead {
  try {
    return { headers: decode(), problem: null };
  } catch (error) {
    return { headers: undefined, problem: error instanceof Error ? error.message : String(error) };
  }
}
