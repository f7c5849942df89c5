import { stat } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { startImpostor } from '../support/nats-impostor.ts';
import { available } from '../support/requirement.ts';
import { expectSettled } from '../support/settled.ts';

describe.skipIf(!available('fault'))('a runner that starts', () => {
  let gym: TestGym;
  beforeAll(async () => {
    gym = await openGym();
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  it('waits for NATS and S3 that are not there, says so, and then works', async () => {
    await gym.nats.kill();
    await gym.s3.kill();
    const runner = gym.spawn('early', { AWS_ENDPOINT_URL: gym.s3.endpoint });
    const noNats = await runner.logged('no NATS server answers; waiting for it (NATS_URL says where it is looked for)');
    expect(noNats.servers).toBe(new URL(gym.nats.url).host);
    const noS3 = await runner.logged('S3 is not there; waiting for it (AWS_ENDPOINT_URL says where)');
    expect(noS3).toMatchObject({ endpoint: gym.s3.endpoint, bucket: 'gymbus' });
    // Not once: a person may look at the terminal at any time.
    const told = runner.lines.length;
    await runner.logged(/^no NATS server answers/, { since: told });
    await runner.logged(/^S3 is not there/, { since: told });

    await gym.s3.start();
    await runner.logged('S3 is there');
    await gym.nats.start();
    await runner.ready();
    await eventually(() => gym.bus.connected, 30_000);
    const job = quickJob('early');
    await gym.publish(job);
    await expectSettled(gym, job);
    await runner.stop();
  });

  it('leaves when it is told to while it waits', async () => {
    await gym.nats.kill();
    const runner = gym.spawn('early');
    await runner.logged(/^no NATS server answers/);
    runner.terminate();
    expect(await runner.exited).toEqual({ code: 130, signal: null });
    expect(runner.lines.at(-1)?.msg).toBe('gymbus: interrupted');
    await gym.nats.start();
    await eventually(() => gym.bus.connected, 30_000);
  });

  it('refuses a nats-server that is too old, and names the remedy', async () => {
    await using old = await startImpostor('2.9.10');
    const runner = gym.spawn('early', { NATS_URL: old.url });
    expect(await runner.exited).toEqual({ code: 1, signal: null });
    expect(runner.tail()).toMatch(
      /gymbus: nats-server at .* is version 2\.9\.10; gymbus needs 2\.12 or newer.*Upgrade it \(go install github\.com\/nats-io\/nats-server\/v2@latest\) or point NATS_URL elsewhere/,
    );
  });

  it('refuses keys that S3 does not take, and a name that another has', async () => {
    const stranger = gym.spawn('early', { AWS_SECRET_ACCESS_KEY: 'wrong' });
    expect(await stranger.exited).toEqual({ code: 1, signal: null });
    expect(stranger.tail()).toMatch(/gymbus: .*SignatureDoesNotMatch.*AWS_SECRET_ACCESS_KEY/);

    const runner = await gym.start('early');
    const namesake = gym.spawn('early');
    expect(await namesake.exited).toEqual({ code: 1, signal: null });
    expect(namesake.tail()).toMatch(/another runner .* is alive on .*GYMBUS_RUNNER_ID of its own/);
    const job = quickJob('namesake');
    await gym.publish(job);
    await expectSettled(gym, job);
    await runner.stop();
  });

  it('killed, leaves its storage area mounted; the next one finds it, and unmounts it when it stops', async () => {
    const mounted = async () => (await stat(gym.area.path)).dev !== (await stat(gym.dataDir)).dev;
    await gym.area[Symbol.asyncDispose]();
    if (gym.area.description.includes('itself cannot reflink')) expect(await mounted()).toBe(false);
    const first = await gym.start('mount');
    const wasMounted = await mounted();
    await first.kill();
    expect(await mounted()).toBe(wasMounted);
    const next = await gym.start('mount');
    const job = quickJob('mounted');
    await gym.publish(job);
    await expectSettled(gym, job);
    await next.stop();
    expect(await mounted()).toBe(false);
  });
});
