import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { GuestSilent } from '../../functions/guest.ts';
import { HelperError, QmpError, QmpSilent } from '../../runner/qemu/errors.ts';
import { HelperClient } from '../../runner/qemu/helper.ts';
import { QmpClient } from '../../runner/qemu/qmp.ts';
import { type Channel, openChannel } from '../support/channel.ts';

/** The other end of a channel: a server on a real socket that answers as a test tells it. */
let channel: Channel;
let near: Socket;
let far: Socket;
let requests: Record<string, unknown>[];
const answered = new Set<(request: Record<string, unknown>) => void>();

beforeEach(async () => {
  channel = await openChannel();
  ({ near, far } = channel);
  requests = [];
  answered.clear();
  let text = '';
  far.on('data', (chunk) => {
    text += chunk.toString('utf8');
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n')) {
      const line = text.slice(0, end);
      text = text.slice(end + 1);
      if (line === '') continue;
      const request = JSON.parse(line) as Record<string, unknown>;
      requests.push(request);
      for (const answer of answered) answer(request);
    }
  });
});

afterEach(() => channel[Symbol.asyncDispose]());

const say = (value: unknown): void => {
  far.write(`${JSON.stringify(value)}\n`);
};

describe('qmp client', () => {
  it('pairs answers with commands, whatever their order, and passes events on', async () => {
    const qmp = new QmpClient(near);
    const events: string[] = [];
    qmp.on('event', ({ name }) => events.push(name));
    say({ QMP: { version: {}, capabilities: [] } });
    const [one, two] = [qmp.execute('one'), qmp.execute('two', { x: 1 })];
    await expect.poll(() => requests.length).toBe(2);
    say({ event: 'RESET', data: {}, timestamp: {} });
    say({ return: { b: 2 }, id: requests[1]?.id });
    say({ return: { a: 1 }, id: requests[0]?.id });
    expect(await one).toEqual({ a: 1 });
    expect(await two).toEqual({ b: 2 });
    expect(requests[1]).toMatchObject({ execute: 'two', arguments: { x: 1 } });
    expect(events).toEqual(['RESET']);
  });

  it('tells a refusal from silence', async () => {
    const qmp = new QmpClient(near);
    answered.add((request) => {
      if (request.execute === 'bad') say({ error: { class: 'GenericError', desc: 'no such thing' }, id: request.id });
    });
    await expect(qmp.execute('bad')).rejects.toThrow(new QmpError('qemu: no such thing'));
    const silent = qmp.execute('slow', undefined, { deadlineMs: 30 });
    await expect(silent).rejects.toThrow(new QmpSilent('qemu did not answer slow within 30 ms'));
  });

  it('fails everything on its way when the channel closes, and everything after', async () => {
    const qmp = new QmpClient(near);
    const [first, event] = [qmp.execute('one'), qmp.next(() => false, 10_000, 'a thing')];
    far.destroy();
    await expect(first).rejects.toBeInstanceOf(QmpSilent);
    await expect(event).rejects.toThrow('qemu went away before a thing');
    await expect(qmp.execute('two')).rejects.toBeInstanceOf(QmpSilent);
  });

  it('ends a wait with its signal', async () => {
    const qmp = new QmpClient(near);
    const stop = new AbortController();
    const waiting = qmp.execute('one', undefined, { signal: stop.signal });
    stop.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
  });
});

describe.each([
  ['qmp', () => new QmpClient(near)],
  ['helper', () => new HelperClient(near)],
])('%s client, whatever is said to it', (_, open) => {
  it.each([
    ['a list of very many', `{"id":1,"ok":true,"return":[${'0,'.repeat(400_000)}0]}\n`],
    [
      'very many lists',
      `{"id":1,"ok":true,"return":${'['.repeat(1_000)}${']'.repeat(1_000)}}\n${'[[],[]]\n'.repeat(900)}`,
    ],
    ['an event of very many', `{"event":"X","data":{"a":[${'{},'.repeat(100_000)}{}]}}\n`],
  ])('goes on after %s', async (_what, lines) => {
    const client = open();
    far.write(lines);
    answered.add((request) => say({ id: request.id, ok: true, return: { done: true } }));
    await (client instanceof QmpClient ? client.execute('x') : client.ping(5_000));
    expect(client.open).toBe(true);
  });
});

describe('qmp client of a qemu that its guest has taken over', () => {
  it.each([
    ['answers nobody waits for', '{"return":{},"id":4711}\n'],
    ['events', '{"event":"RTC_CHANGE","data":{}}\n'],
    ['errors', '{"error":{"class":"GenericError","desc":"no"}}\n'],
  ])('closes on a flood of %s', async (_, line) => {
    const qmp = new QmpClient(near);
    const closed = once(qmp, 'close');
    far.write(line.repeat(5_000));
    expect((await closed)[0]).toMatchObject({ message: 'it is flooded with what answers nothing' });
  });

  it('closes on what makes its listener throw, and ends nothing else', async () => {
    const qmp = new QmpClient(near);
    qmp.on('event', ({ data }) => void `${data.reason}`);
    const closed = once(qmp, 'close');
    far.write('{"event":"SHUTDOWN","data":{"reason":{"toString":0,"valueOf":0}}}\n');
    expect((await closed)[0]).toMatchObject({ message: expect.stringContaining('what it says cannot be taken') });
  });
});

describe('helper client', () => {
  it('serves requests at once, each with its own answer', async () => {
    const helper = new HelperClient(near);
    const slow = helper.call('exec', { argv: ['sleep'] }, z.object({ returncode: z.number() }), { deadlineMs: 5_000 });
    const quick = helper.ping(5_000);
    await expect.poll(() => requests.length).toBe(2);
    say({ id: requests[1]?.id, ok: true });
    await quick;
    say({ id: requests[0]?.id, ok: true, returncode: 3 });
    expect(await slow).toMatchObject({ returncode: 3 });
  });

  it('joins an answer that comes in pieces, cut inside a character', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => {
      const line = Buffer.from(`${JSON.stringify({ id: request.id, ok: true, text: 'Grüße 日本' })}\n`);
      const cut = line.indexOf(Buffer.from('ü')) + 1;
      far.write(line.subarray(0, cut), () => setTimeout(() => far.write(line.subarray(cut)), 20));
    });
    const reply = await helper.call('x', {}, z.object({ text: z.string() }), { deadlineMs: 5_000 });
    expect(reply.text).toBe('Grüße 日本');
  });

  it('leaves out what is no answer and goes on', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => {
      far.write('\u0000garbage{\n[]\n{"id":null,"ok":false,"code":"EPROTO","error":"x"}\n{"id":9999,"ok":true}\n');
      say({ id: request.id, ok: true });
    });
    await helper.ping(5_000);
  });

  it('drops an answer that comes after its deadline', async () => {
    const helper = new HelperClient(near);
    await expect(helper.ping(20)).rejects.toThrow(new GuestSilent('the guest did not answer ping within 20 ms'));
    say({ id: requests[0]?.id, ok: true });
    answered.add((request) => say({ id: request.id, ok: true }));
    await helper.ping(5_000);
    expect(requests.map(({ id }) => id)).toEqual([1, 2]);
  });

  it('keeps the code of a refusal', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => say({ id: request.id, ok: false, code: 'ENOENT', error: 'no such file' }));
    const refused = helper.call('read_file', {}, z.unknown(), { deadlineMs: 5_000 });
    await expect(refused).rejects.toMatchObject({ name: 'HelperError', code: 'ENOENT', message: 'no such file' });
  });

  it('names an answer of the wrong shape', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => say({ id: request.id, ok: true, returncode: 'zero' }));
    const wrong = helper.call('exec', {}, z.object({ returncode: z.number() }), { deadlineMs: 5_000 });
    await expect(wrong).rejects.toBeInstanceOf(HelperError);
    await expect(wrong).rejects.toThrow('returncode');
  });

  it('asks again until a guest that is starting answers', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => {
      if (requests.length > 1) say({ id: request.id, ok: true });
    });
    await helper.waitUp(10_000, new AbortController().signal);
    expect(requests.length).toBe(2);
  });

  it.each([
    ['empty lines', '\n', 100_000],
    ['lines that are no JSON', '{x\n', 100_000],
    ['answers to nothing', '{"id":null,"ok":true}\n', 100_000],
    ['answers nobody waits for', '{"id":4711,"ok":true}\n', 100_000],
    ['long ones', `{"id":4711,"ok":true,"data":"${'x'.repeat(2 ** 20)}"}\n`, 10],
  ])('closes on a guest that floods it with %s', async (_, line, times) => {
    const helper = new HelperClient(near);
    const waiting = helper.ping(10_000);
    far.write(line.repeat(times));
    await expect(waiting).rejects.toThrow(
      new GuestSilent("the guest's channel is gone: it is flooded with what answers nothing"),
    );
    expect(helper.open).toBe(false);
  });

  it('bears late answers for as long as it is answered at all', async () => {
    const helper = new HelperClient(near);
    answered.add((request) => {
      far.write('{"id":4711,"ok":true}\n'.repeat(900));
      say({ id: request.id, ok: true });
    });
    for (let n = 0; n < 3; n += 1) await helper.ping(5_000);
    expect(helper.open).toBe(true);
  });
});
