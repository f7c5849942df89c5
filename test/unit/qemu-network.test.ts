import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NetworkChannel } from '../../runner/qemu/network-channel.ts';
import {
  encodeFrame,
  FRAME,
  FrameReader,
  MOST_BODY_BYTES,
  ProtocolError,
  WINDOW_BYTES,
} from '../../runner/qemu/network-frames.ts';
import { type Channel, openChannel } from '../support/channel.ts';
import { collect } from '../support/collect.ts';
import { NetworkPeer } from '../support/network-peer.ts';

const { open, data, window: more, end, reset } = FRAME;

describe('frames', () => {
  const frame = fc.oneof(
    fc.record({ kind: fc.constantFrom(open, end, reset), body: fc.constant(new Uint8Array()) }),
    fc.record({ kind: fc.constant(data), body: fc.uint8Array({ minLength: 1, maxLength: 300 }) }),
    fc.record({ kind: fc.constant(more), body: fc.uint8Array({ minLength: 4, maxLength: 4 }) }),
  );
  const stream = fc.integer({ min: 0, max: 2 ** 32 - 1 });

  it('come out as they went in, wherever they are cut', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(frame, stream)),
        fc.infiniteStream(fc.integer({ min: 1, max: 40 })),
        (sent, cuts) => {
          const bytes = Buffer.concat(sent.map(([{ kind, body }, number]) => encodeFrame(kind, number, body)));
          const reader = new FrameReader();
          const got: unknown[] = [];
          for (let at = 0; at < bytes.length; ) {
            const length = cuts.next().value as number;
            for (const { kind, stream: number, body } of reader.read(bytes.subarray(at, at + length))) {
              got.push([kind, number, body.toString('hex')]);
            }
            at += length;
          }
          const expected = sent.map(([{ kind, body }, number]) => [kind, number, Buffer.from(body).toString('hex')]);
          expect(got).toEqual(expected);
        },
      ),
    );
  });

  it('of garbage are none, and an error of the protocol at the most', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 })), (chunks) => {
        const reader = new FrameReader();
        try {
          for (const chunk of chunks) [...reader.read(Buffer.from(chunk))];
        } catch (error) {
          expect(error).toBeInstanceOf(ProtocolError);
        }
      }),
      { numRuns: 1_000 },
    );
  });

  it.each([
    ['an unknown kind', Buffer.from([9, 0, 0, 0, 1, 0, 0])],
    ['more in one than may be', Buffer.from([data, 0, 0, 0, 1, 0x40, 0x01])],
    ['data of none', encodeFrame(data, 1)],
    ['a window without a number', encodeFrame(more, 1)],
    ['an end that says something', encodeFrame(end, 1, Buffer.from('x'))],
  ])('refuse %s before the rest of it has come', (_, bytes) => {
    expect(() => [...new FrameReader().read(bytes)]).toThrow(ProtocolError);
  });
});

let channel: Channel;
let peer: NetworkPeer;
let connections: Duplex[];
let reasons: string[];
beforeEach(async () => {
  channel = await openChannel();
  peer = new NetworkPeer(channel.far);
  connections = [];
  reasons = [];
  new NetworkChannel(
    channel.near,
    (connection) => connections.push(connection),
    (reason) => reasons.push(reason),
  );
});
afterEach(() => channel[Symbol.asyncDispose]());

async function connection(number: number): Promise<Duplex> {
  const before = connections.length;
  peer.send('open', number);
  await expect.poll(() => connections.length).toBe(before + 1);
  return connections[before] as Duplex;
}

describe('a connection of a guest’s program', () => {
  it('carries both directions, each to its own end', async () => {
    const it = await connection(1);
    peer.send('data', 1, Buffer.from('question'));
    peer.send('end', 1);
    expect(String(await collect(it))).toBe('question');
    // The other direction lives on.
    it.write('ans');
    it.end('wer');
    await once(it, 'close');
    await expect.poll(() => peer.of('end', 1).length).toBe(1);
    expect(String(peer.data(1))).toBe('answer');
    expect(peer.of('reset', 1)).toEqual([]);
  });

  it('sends no more than was allowed', async () => {
    const it = await connection(1);
    const sent = randomBytes(WINDOW_BYTES + 50_000);
    let ended = false;
    it.end(sent, () => {
      ended = true;
    });
    await expect.poll(() => peer.data(1).length).toBe(WINDOW_BYTES);
    await sleep(50);
    expect([peer.data(1).length, ended]).toEqual([WINDOW_BYTES, false]);
    expect(Math.max(...peer.of('data', 1).map(({ body }) => body.length))).toBe(MOST_BODY_BYTES);
    peer.allow(1, 10_000);
    await expect.poll(() => peer.data(1).length).toBe(WINDOW_BYTES + 10_000);
    peer.allow(1, 90_000);
    await expect.poll(() => peer.of('end', 1).length).toBe(1);
    expect(peer.data(1).equals(sent)).toBe(true);
  });

  it('allows more only as it is read, and loses nothing meanwhile', async () => {
    const it = await connection(1);
    const sent = randomBytes(WINDOW_BYTES * 2);
    const allowed = (): number => peer.of('window', 1).reduce((sum, { body }) => sum + body.readUInt32BE(), 0);
    // A window in crumbs, which nobody reads: the first of them are its reader's, the rest waits.
    for (let at = 0; at < WINDOW_BYTES; at += 256) peer.send('data', 1, sent.subarray(at, at + 256));
    await sleep(100);
    expect(allowed()).toBe(0);
    expect(it.readableLength).toBeLessThan(1_024);
    const pieces: Buffer[] = [];
    it.on('data', (piece: Buffer) => pieces.push(piece));
    await expect.poll(allowed).toBeGreaterThanOrEqual(WINDOW_BYTES / 2);
    let at = WINDOW_BYTES;
    for (let free = allowed(); at < sent.length; free = WINDOW_BYTES + allowed() - at) {
      const length = Math.min(MOST_BODY_BYTES, free, sent.length - at);
      if (length > 0) peer.send('data', 1, sent.subarray(at, at + length));
      at += length;
      await sleep(5);
    }
    peer.send('end', 1);
    await once(it, 'end');
    expect(Buffer.concat(pieces).equals(sent)).toBe(true);
    // What waited came in one piece, not in five hundred.
    expect(pieces.length).toBeLessThan(40);
  });

  it('ends for the guest when it breaks here, and here when the guest drops it', async () => {
    const one = await connection(1);
    one.destroy(new Error('broken'));
    await expect.poll(() => peer.of('reset', 1).length).toBe(1);
    // What was under way is nobody's any more.
    peer.send('data', 1, Buffer.from('late'));
    const two = await connection(2);
    peer.send('reset', 2);
    await once(two, 'close');
    await connection(3);
    expect(peer.of('reset', 2)).toEqual([]);
    expect(reasons).toEqual([]);
  });

  it('ends with the channel', async () => {
    const it = await connection(1);
    channel.far.destroy();
    await once(it, 'close');
    expect(reasons).toHaveLength(1);
  });
});

describe('a guest that misbehaves loses its network', () => {
  it.each<[string, (to: NetworkPeer) => void, string]>([
    ['garbage', (to) => to.raw(Buffer.from('GET / HTTP/1.1\r\n\r\n')), 'no known kind (71)'],
    ['data for what never was', (to) => to.send('data', 7, Buffer.from('x')), 'stream 7, which never was'],
    ['a number twice', (to) => to.send('open', 1), 'stream 1 opened after 1'],
    [
      'more than its window',
      (to) => {
        for (let sent = 0; sent <= WINDOW_BYTES; sent += MOST_BODY_BYTES)
          to.send('data', 1, Buffer.alloc(MOST_BODY_BYTES));
      },
      'more data on stream 1 than its window',
    ],
    ['a window of what nobody has sent', (to) => to.allow(1, 1), `a window of ${WINDOW_BYTES + 1} bytes`],
    ['a window of nothing', (to) => to.allow(1, 0), 'a window of nothing on stream 1'],
    [
      'data after the end',
      (to) => {
        to.send('end', 1);
        to.send('data', 1, Buffer.from('x'));
      },
      'data on stream 1 after its end',
    ],
    [
      'a flood of what does nothing',
      (to) => {
        to.send('reset', 1);
        for (let n = 0; n < 1_002; n += 1) to.send('reset', 1);
      },
      'flooded',
    ],
  ])('by %s', async (_, misbehave, reason) => {
    const it = await connection(1);
    misbehave(peer);
    await expect.poll(() => reasons).toEqual([expect.stringContaining(reason)]);
    if (!it.closed) await once(it, 'close');
    expect(channel.near.destroyed).toBe(true);
  });

  it('whatever it writes, by an error of its own and no other', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 20 }), async (chunks) => {
        await using own = await openChannel();
        const closed: string[] = [];
        new NetworkChannel(
          own.near,
          (it) => it.end('x').resume(),
          (reason) => closed.push(reason),
        );
        own.far.on('error', () => undefined);
        // A sound beginning, so that some of it is taken for frames of a stream.
        own.far.write(encodeFrame(open, 1));
        for (const chunk of chunks)
          own.far.write(Buffer.concat([Buffer.from([1 + (chunk.length % 5), 0, 0, 0, 1]), chunk]));
        own.far.end();
        await expect.poll(() => closed.length).toBe(1);
      }),
      { numRuns: 50 },
    );
  });

  it('not by opening many: what is too much is turned away', async () => {
    for (let number = 1; number <= 140; number += 1) peer.send('open', number);
    await expect.poll(() => peer.of('reset', 140).length).toBe(1);
    expect(connections).toHaveLength(128);
    // And in sum, by time: of 500 that come and go at once some are refused.
    for (let number = 1; number <= 128; number += 1) peer.send('reset', number);
    for (let number = 141; number <= 641; number += 1) {
      peer.send('open', number);
      peer.send('reset', number);
    }
    await expect.poll(() => peer.of('reset', 641).length).toBe(1);
    expect(connections.length).toBeLessThan(500);
    expect(reasons).toEqual([]);
  });

  it('not by reading nothing: then nothing more is read from it', async () => {
    channel.far.pause();
    for (let number = 1; number <= 64; number += 1) peer.send('open', number);
    await expect.poll(() => connections.length).toBe(64);
    for (const it of connections) it.write(Buffer.alloc(WINDOW_BYTES));
    await expect.poll(() => channel.near.writableLength).toBeGreaterThan(2 ** 20);
    expect(channel.near.writableLength).toBeLessThan(64 * (WINDOW_BYTES + 200));
    expect(channel.near.isPaused()).toBe(true);
    channel.far.resume();
    await expect.poll(() => channel.near.isPaused()).toBe(false);
    peer.send('end', 1);
    connections[0]?.resume();
    await once(connections[0] as Duplex, 'end');
  });
});
