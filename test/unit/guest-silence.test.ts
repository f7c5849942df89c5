import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { agentAnswers } from '../../runner/replica/guest-silence.ts';
import { type Channel, openChannel } from '../support/channel.ts';

let channel: Channel;
beforeEach(async () => {
  channel = await openChannel();
  channel.near.resume();
});
afterEach(() => channel[Symbol.asyncDispose]());

it('an agent answers when it says something to a ping, each time anew', async () => {
  const { near, far } = channel;
  far.on('data', (ping) => far.write(`{"return": {}, "to": ${ping.length}}\n`));
  expect(await agentAnswers(near, new AbortController().signal)).toBe(true);
  expect(await agentAnswers(near, new AbortController().signal)).toBe(true);
  expect([near.destroyed, near.listenerCount('data'), near.listenerCount('error')]).toEqual([false, 0, 0]);
});

it('an agent that said something before, and is silent now, does not answer', async () => {
  const { near, far } = channel;
  const heard = once(near, 'data');
  far.write('{"return": {}}\n');
  await heard;
  const lost = new AbortController();
  const answers = agentAnswers(near, lost.signal);
  await sleep(50);
  lost.abort();
  expect(await answers).toBe(false);
});

it('an agent whose machine ends does not answer', async () => {
  const answers = agentAnswers(channel.near, new AbortController().signal);
  channel.near.destroy(new Error('gone'));
  expect(await answers).toBe(false);
});
