import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastStored } from '../../runner/bus/stored.ts';
import { openChannel } from '../support/channel.ts';
import { PictureDesk, TestRunner } from '../support/delivery.ts';
import { startServers, type TestServers } from '../support/servers.ts';

let servers: TestServers;
let runner: TestRunner;
beforeAll(async () => {
  servers = await startServers();
  runner = new TestRunner(servers);
});
afterAll(async () => {
  await runner[Symbol.asyncDispose]();
  await servers[Symbol.asyncDispose]();
});

describe('a job that asks for hosts', () => {
  it('which the policy of its image does not allow is a dead letter, and no guest is touched', async () => {
    await runner.publish('hosts-refused', { network: { hosts: ['example.org'] } });
    const desk = new PictureDesk();
    const { result } = await runner.deliver('hosts-refused', { desk });
    expect(result).toMatchObject({ status: 'dead', attempts: 0, failure: { class: 'invalid_job' } });
    expect(result?.failure?.message).toMatch(
      /^network\.hosts\.0: the policy of image debian-desktop does not allow "example\.org", it allows none/,
    );
    expect(desk.looks).toBe(0);
    const { bus } = servers;
    const letter = { image: 'debian-desktop', batch: 'hosts-refused', job: 'j' };
    expect(await lastStored(bus, bus.names.deadStream, bus.names.deadSubject(letter))).not.toBeNull();
  });

  it('has its network from before the set-up on, and what was done with it in its result and its log', async () => {
    await using allowing = new TestRunner(servers, servers.place, { allowedHosts: () => ['*.example.org'] });
    await using channel = await openChannel();
    const desk = new PictureDesk();
    let answer = '';
    desk.before.exec = async () => {
      desk.network?.accept(channel.near);
      channel.far.write('CONNECT evil.example:443 HTTP/1.1\r\n\r\n');
      for await (const chunk of channel.far) answer += chunk;
    };
    const setup = [{ type: 'execute', parameters: { command: ['true'] } }];
    await runner.publish('hosts', { network: { hosts: ['www.example.org'] }, setup });
    const { result } = await allowing.deliver('hosts', { desk });
    expect(answer).toMatch(
      /^HTTP\/1\.1 403 .*may not reach evil\.example:443, its network\.hosts are www\.example\.org/s,
    );
    expect(result).toMatchObject({ status: 'completed' });
    expect(result?.network).toEqual([
      {
        ...{ host: 'evil.example', port: 443, connections: 0, refused: 1, failed: 0 },
        ...{ sent_bytes: 0, received_bytes: 0 },
      },
    ]);
    const folder = (result?.trajectory ?? '').replace(/^s3:\/\/[^/]+\//, '');
    expect(String(await servers.place.store.get(`${folder}runner.log`, 1e6))).toContain('"host":"evil.example"');
  });

  it('is played again where its guest gets no network', async () => {
    await using allowing = new TestRunner(servers, servers.place, { allowedHosts: () => ['example.org'] });
    const desk = new PictureDesk();
    desk.openNetwork = () => Promise.reject(new Error('no socket'));
    await runner.publish('hosts-none', { network: { hosts: ['example.org'] } });
    expect(await allowing.deliver('hosts-none', { desk })).toMatchObject({
      ...{ end: 'retrying', failure: { class: 'guest', message: 'opening the network: no socket' } },
    });
  });

  it('not at all has none, and says nothing of one', async () => {
    const desk = new PictureDesk();
    await runner.publish('hosts-unasked', {});
    const { result } = await runner.deliver('hosts-unasked', { desk });
    expect(desk.network).toBeNull();
    expect(Object.keys(result ?? {})).not.toContain('network');
  });
});
