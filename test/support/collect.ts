import { once } from 'node:events';
import type { Readable } from 'node:stream';

/** All that comes on one direction of a stream, to its end. The other direction stays as it is: iterating over a stream would close it. */
export async function collect(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(stream, 'end');
  return Buffer.concat(chunks);
}
