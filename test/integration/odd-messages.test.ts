import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BatchFlags, readBatch, updateBatch } from '../../runner/bus/batch-flags.ts';
import { Batches } from '../../runner/bus/batches.ts';
import { readRunners } from '../../runner/bus/heartbeat.ts';
import { lastStored } from '../../runner/bus/stored.ts';
import { kvSubject } from '../../runner/bus/streams.ts';
import { deliver } from '../../runner/job/delivery.ts';
import type { DeliverySummary } from '../../runner/job/delivery-context.ts';
import { eventually } from '../support/bus-jobs.ts';
import { PictureDesk, reservationOf, TestRunner } from '../support/delivery.ts';
import { RawPublisher } from '../support/raw-publisher.ts';
import { startServers, type TestServers } from '../support/servers.ts';

/*
 * Messages that no client's library would write. The server stores and passes on all of them; after each a runner still
 * hears the bus on the same connection, plays a sound job, and has settled the odd one.
 */

let servers: TestServers;
let runner: TestRunner;
let publisher: RawPublisher;
let batches: Batches;
let connection: AbortSignal;
beforeAll(async () => {
  servers = await startServers();
  runner = new TestRunner(servers);
  publisher = await RawPublisher.connect(servers.nats.port);
  batches = new Batches(servers.bus, { images: ['debian-desktop'] });
  connection = servers.bus.connection;
});
afterAll(async () => {
  batches[Symbol.dispose]();
  publisher[Symbol.dispose]();
  await runner[Symbol.asyncDispose]();
  await servers[Symbol.asyncDispose]();
});

const block = (...lines: string[]): string => `NATS/1.0\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
const never = new AbortController().signal;

/** Takes jobs as a runner does until there are so many, and sees each to its end. */
async function playNext(count: number): Promise<Record<string, DeliverySummary>> {
  const ends: Record<string, DeliverySummary> = {};
  await eventually(async () => {
    for (const taken of await batches.take('debian-desktop', 4)) {
      const { batch } = taken.message.address;
      ends[batch] = await deliver(runner.player, taken, reservationOf(new PictureDesk()), never);
    }
    return Object.keys(ends).length >= count;
  });
  return ends;
}

const completed = { end: 'committed', result: { status: 'completed' } };
const refused = (reason: RegExp) => ({
  end: 'committed',
  result: { status: 'dead', failure: { class: 'invalid_job', message: expect.stringMatching(reason) } },
});

/** `body`: a sound job unless said. `becomes`: what the odd job ends as. */
const odd: Record<string, { headers: string | null; body?: string; becomes: object }> = {
  'a blank in a name': { headers: block('X Y: v'), becomes: refused(/headers .* cannot be read/) },
  'a letter that is no ASCII': { headers: block('\u00dc: v'), becomes: refused(/headers .* cannot be read/) },
  'bytes that are no UTF-8': { headers: block('\u00ff\u00fe: v'), becomes: refused(/headers .* cannot be read/) },
  'a control character in a name': { headers: block('A\u0000B: v'), becomes: refused(/headers .* cannot be read/) },
  'a line break in a value': { headers: block('A: b\nc'), becomes: refused(/headers .* cannot be read/) },
  'an empty name': { headers: block(': v'), becomes: completed },
  'a line without a colon': { headers: block('nothing'), becomes: completed },
  'no line at all': { headers: 'NATS/1.0\r\n\r\n', becomes: completed },
  many: {
    headers: block(...Array.from({ length: 10_000 }, (_, n) => `${n.toString(36)}:`)),
    becomes: refused(/at most 8192 are read/),
  },
  'a status of 404 and no body': {
    headers: 'NATS/1.0 404 No Messages\r\n\r\n',
    body: '',
    becomes: refused(/not UTF-8 JSON/),
  },
  'a status of 503 and no body': { headers: 'NATS/1.0 503\r\n\r\n', body: '', becomes: refused(/not UTF-8 JSON/) },
  'a status and a job': { headers: 'NATS/1.0 409 Consumer Deleted\r\n\r\n', becomes: completed },
  "the server's own names": {
    headers: block('Nats-Sequence: 99999999', 'Nats-Subject: x', 'Nats-Stream: y', 'KV-Operation: DEL'),
    becomes: completed,
  },
  'a fence that is none': { headers: block('Gymbus-Supersedes: \u00ff'), becomes: refused(/Gymbus-Supersedes/) },
  'none, and no body': { headers: null, body: '', becomes: refused(/not UTF-8 JSON/) },
  'none, and a body that is no UTF-8': { headers: null, body: '\u00ff\u00fe', becomes: refused(/not UTF-8 JSON/) },
};

describe('after a job message with odd headers', () => {
  it.each(Object.entries(odd).map(([name, row], n) => ({ name, batch: `odd-${n}`, ...row })))(
    'a sound one is played, and it is settled: $name',
    async ({ batch, headers, body, becomes }) => {
      const subject = `gymbus.jobs.debian-desktop.${batch}.j`;
      const sound = soundJob(batch);
      await publisher.publish(subject, headers, body ?? sound);
      expect(await lastStored(servers.bus, servers.bus.names.jobsStream, subject)).not.toBeNull();
      await runner.publish(`good-${batch}`, {});
      const ends = await playNext(2);
      expect(ends[`good-${batch}`]).toMatchObject(completed);
      expect(ends[batch]).toMatchObject(becomes);
      expect(await runner.queued(batch)).toBe(false);
      const letter = await lastStored(servers.bus, 'GYMBUS_DEAD', `gymbus.dead.debian-desktop.${batch}.j`);
      expect(letter && Buffer.from(letter.data).toString('latin1')).toBe(
        becomes === completed ? null : (body ?? sound),
      );
      if (letter) expect(letter.headers.get('Gymbus-Class')).toBe('invalid_job');
      expect(connection.aborted, 'the connection was lost').toBe(false);
    },
  );

  it('announcements that are missed are still noticed', async () => {
    // One that counted for many would hide those that come after it.
    await publisher.publish('gymbus.queued.debian-desktop.x.y', block('Nats-Sequence: 1'));
    await publisher.publish('gymbus.queued.debian-desktop.x.y', block('X Y: v'));
    await runner.publish('after-announcements', {});
    expect(await playNext(1)).toMatchObject({ 'after-announcements': completed });
    expect(connection.aborted).toBe(false);
  });
});

describe('after a job on an odd subject', () => {
  // The server reports these as errors, and stores them. A durable for one would take the jobs of every batch that it matches.
  it.each(['gymbus.jobs.*.w0.j', 'gymbus.jobs.debian-desktop.*.j', 'gymbus.jobs.>.w2.j', 'gymbus.jobs.*.*.*'])(
    'a sound one is played: %s',
    async (subject) => {
      await expect(publisher.publish(subject, null, '{}')).rejects.toThrow('Invalid Publish Subject');
      expect(await lastStored(servers.bus, servers.bus.names.jobsStream, subject)).not.toBeNull();
      await batches.take('debian-desktop', 1);
      const batch = `w-${Buffer.from(subject).toString('hex').slice(-32)}`;
      await runner.publish(batch, {});
      expect(await playNext(1)).toMatchObject({ [batch]: completed });
      expect(batches.known.filter(({ image, batch }) => /[*>]/.test(image + batch))).toEqual([]);
      expect(connection.aborted).toBe(false);
    },
  );

  it.each(['gymbus.jobs.debian-desktop.w.*', 'gymbus.jobs.debian-desktop.w.\u00ff\u00fe'])(
    'a sound one is played, and it is refused: %s',
    async (subject) => {
      await publisher.publish(subject, null, '{}').catch(() => undefined);
      expect(await playNext(1)).toMatchObject({ w: { end: 'refused', failure: { class: 'invalid_job' } } });
      await runner.publish(`w-${subject.length}`, {});
      expect(await playNext(1)).toMatchObject({ [`w-${subject.length}`]: completed });
      expect(connection.aborted).toBe(false);
    },
  );
});

describe('an odd message in a bucket', () => {
  it('of batches leaves flags seen, and its own batch to be read', async () => {
    const { bus } = servers;
    const record = '{"schema":"gymbus.batch.v1","paused":true}';
    await publisher.publish(kvSubject(bus.names.batchesBucket, 'flagged'), block('X Y: v'), record);
    await using flags = new BatchFlags(bus);
    await updateBatch(bus, 'later', { priority: 3 });
    await eventually(() => flags.standing('later').priority === 3);
    await publisher.publish(kvSubject(bus.names.batchesBucket, 'flagged-too'), block('\u00dc: v'), record);
    await updateBatch(bus, 'last', { cancelled: true });
    await eventually(() => flags.standing('last').cancelled);
    expect([flags.standing('flagged').paused, flags.standing('flagged-too').paused]).toEqual([true, true]);
    expect(await readBatch(bus, 'flagged')).toMatchObject({ paused: true });
    expect(await flags.isCancelled('flagged')).toBe(false);
    expect(connection.aborted).toBe(false);
  });

  it('of batches that is larger than any record is none', async () => {
    const { bus } = servers;
    const record = { schema: 'gymbus.batch.v1', paused: true, labels: { much: 'x'.repeat(70_000) } };
    await publisher.publish(kvSubject(bus.names.batchesBucket, 'large'), null, JSON.stringify(record));
    await using flags = new BatchFlags(bus);
    await updateBatch(bus, 'after-large', { paused: true });
    await eventually(() => flags.standing('after-large').paused);
    expect(flags.standing('large').paused).toBe(false);
    expect(await readBatch(bus, 'large')).toBeNull();
  });

  it('of runners hides no other, and nobody grows deaf of it', async () => {
    const { bus } = servers;
    await publisher.publish(kvSubject(bus.names.runnersBucket, 'odd'), block('X Y: v'), '{}');
    await publisher.publish(kvSubject(bus.names.runnersBucket, 'none'), 'NATS/1.0 404 x\r\n\r\n', '');
    expect(await readRunners(bus)).toEqual([]);
    await bus.nc.flush();
    expect(connection.aborted).toBe(false);
  });
});

function soundJob(batch: string): string {
  return JSON.stringify({
    schema: 'gymbus.job.v1',
    ...{ batch_id: batch, job_id: 'j', image: 'debian-desktop', instruction: 'Say so.' },
    policy: { name: 'scripted', params: { actions: [{ type: 'done' }] } },
  });
}
