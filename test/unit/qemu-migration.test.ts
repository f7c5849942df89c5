import { once } from 'node:events';
import { lstat, readdir } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { saveState } from '../../runner/qemu/migration.ts';
import { QmpClient } from '../../runner/qemu/qmp.ts';
import { type Channel, openChannel } from '../support/channel.ts';

/** The other end of a machine's control channel: refuses every command, or keeps silent. */
let channel: Channel;
let refusal: string | null;

beforeEach(async () => {
  channel = await openChannel();
  refusal = null;
  const { far } = channel;
  far.on('data', (chunk) => {
    const { id } = JSON.parse(chunk.toString('utf8').split('\n')[0] ?? '') as { id: number };
    if (refusal !== null) far.write(`${JSON.stringify({ error: { class: 'GenericError', desc: refusal }, id })}\n`);
  });
});

afterEach(() => channel[Symbol.asyncDispose]());

/** An unhandled rejection, which would end a whole runner, fails the test run by itself: it only needs the time to come. */
describe('saving device state', () => {
  it('that is refused leaves nothing to reject later, when the machine is killed for it', async () => {
    refusal = 'not now';
    const lost = new AbortController();
    const saving = saveState(
      new QmpClient(channel.near),
      path.join(channel.folder, 'save'),
      null,
      path.join(channel.folder, 'state'),
      lost.signal,
    );
    await expect(saving).rejects.toThrow('qemu: not now');
    lost.abort(new Error('machine killed'));
    await sleep(20);
    expect(await readdir(channel.folder)).toEqual([]);
  });

  it('whose machine dies meanwhile ends with the cause', async () => {
    const lost = new AbortController();
    const saving = saveState(
      new QmpClient(channel.near),
      path.join(channel.folder, 'save'),
      null,
      path.join(channel.folder, 'state'),
      lost.signal,
    );
    channel.far.once('data', () => lost.abort(new Error('machine died')));
    await expect(saving).rejects.toThrow('machine died');
    await sleep(20);
  });

  it('that has no place for its socket says so', async () => {
    const nowhere = path.join(channel.folder, 'none', 'save');
    const saving = saveState(
      new QmpClient(channel.near),
      nowhere,
      null,
      path.join(nowhere, 'state'),
      new AbortController().signal,
    );
    await expect(saving).rejects.toMatchObject({ code: 'ENOENT', syscall: 'mkdir' });
    await sleep(20);
  });

  it.skipIf(process.getuid?.() !== 0)('has its socket where QEMU’s user may come, and change nothing', async () => {
    const folder = path.join(channel.folder, 'save');
    const found: Promise<[number, number, number][]> = once(channel.far, 'data').then(() =>
      Promise.all(
        [folder, path.join(folder, 'save.sock')].map(async (file) => {
          const { uid, gid, mode } = await lstat(file);
          return [uid, gid, mode & 0o777] as [number, number, number];
        }),
      ),
    );
    const lost = new AbortController();
    const user = { name: 'nobody', uid: 65_534, gid: 65_534, groups: [] };
    const saving = expect(
      saveState(new QmpClient(channel.near), folder, user, path.join(channel.folder, 'state'), lost.signal),
    ).rejects.toThrow('machine died');
    expect(await found).toEqual([
      [0, 65_534, 0o710],
      [0, 65_534, 0o660],
    ]);
    lost.abort(new Error('machine died'));
    await saving;
    expect(await readdir(channel.folder)).toEqual([]);
  });
});
