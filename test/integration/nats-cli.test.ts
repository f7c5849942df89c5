import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BatchFlags } from '../../runner/bus/batch-flags.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { putDeadLetter } from '../../runner/bus/dead-letters.ts';
import { Events } from '../../runner/bus/events.ts';
import { commitOutcome, readOutcome } from '../../runner/bus/outcomes.ts';
import { publishJob } from '../../runner/bus/publisher.ts';
import { pull } from '../../runner/bus/pull.ts';
import { kvSubject } from '../../runner/bus/streams.ts';
import type { EventKind, JobAddress } from '../../schemas/index.ts';
import { eventually, jobsLeft } from '../support/bus-jobs.ts';
import { natsCliEnv } from '../support/nats-cli.ts';
import { blocksOf, readmeFile } from '../support/readme.ts';
import { sampleJob, sampleResult, sampleStatus } from '../support/samples.ts';
import { startServers, type TestServers } from '../support/servers.ts';
import { Terminal } from '../support/terminal.ts';

/*
 * What people see of gymbus with the real `nats`: four jobs of night-42 on debian-desktop, of which 0001 is done, 0005 runs,
 * 0007 and 0008 wait; one of another batch on an image that nobody serves; one dead letter; one live runner.
 */
const NIGHT = { image: 'debian-desktop', batch: 'night-42' };
let servers: TestServers;
let env: Record<string, string>;

beforeAll(async () => {
  servers = await startServers();
  env = await natsCliEnv(servers.nats.url, servers.nats.folder);
  const { bus } = servers;
  await ensureConsumer(bus, NIGHT);
  for (const job of ['rename-0001', 'rename-0005', 'broken-0001', 'rename-0007', 'rename-0008']) {
    await publish({ ...NIGHT, job });
  }
  await publish({ image: 'windows', batch: 'day-7', job: 'a' });
  const { messages } = await pull(bus, 'debian-desktop~night-42', 3);
  const [done, , broken] = messages;
  if (!done || !broken) throw new Error('jobs are missing');
  const attempt = { batch: 'night-42', job: 'rename-0001', attempt: '1-k3x9q2mv' };
  expect(await commitOutcome(bus, sampleResult(attempt), 0)).toEqual({ won: true, seq: 1 });
  await putDeadLetter(bus, broken, {
    class: 'invalid_job',
    reason: 'policy.name: there is no policy "gpt"',
    attempts: 0,
  });
  await commitOutcome(
    bus,
    sampleResult({ ...attempt, job: 'broken-0001' }, { status: 'dead', valid: false, score: null }),
    0,
  );
  for (const job of ['rename-0001', 'broken-0001']) await remove(job);
  const put = (bucket: string, key: string, value: object) =>
    bus.js.publish(kvSubject(bucket, key), JSON.stringify(value));
  await put(
    bus.names.runnersBucket,
    'host-a',
    sampleStatus({ state: 'holding', reason: 'disk: 1.2 GiB free, floor is 2.0 GiB' }),
  );
  await put(bus.names.attemptsBucket, 'night-42.rename-0007', {
    schema: 'gymbus.attempts.v1',
    attempts: [{ attempt: '1-abcdefgh' }],
  });
});
afterAll(() => servers?.[Symbol.asyncDispose]());

async function publish(address: JobAddress): Promise<void> {
  const job = sampleJob({ image: address.image, batch_id: address.batch, job_id: address.job });
  const published = await publishJob(servers.bus, { address, data: Buffer.from(JSON.stringify(job)) });
  expect(published.kind).toBe('queued');
}

function remove(job: string) {
  const { bus } = servers;
  return bus.jsm.streams.purge(bus.names.jobsStream, { filter: bus.names.jobSubject({ ...NIGHT, job }) });
}

function emit(kind: EventKind): void {
  const ids = { batch_id: 'night-42', job_id: 'rename-0005', attempt: '1-abcdefgh', runner: 'host-a' };
  new Events(servers.bus).emit({ schema: 'gymbus.event.v1', kind, ...ids, at: new Date().toISOString(), data: {} });
}

const shell = (command: string, cwd?: string) =>
  execa('sh', ['-c', command], {
    env,
    reject: false,
    all: true,
    stdin: 'ignore',
    timeout: 60_000,
    ...(cwd ? { cwd } : {}),
  });

describe('every command of the README marked to be run', async () => {
  const page = await readFile(readmeFile, 'utf8');
  const commandsOf = (mark: string): string[] =>
    blocksOf(page)
      .filter((block) => block.mark === mark)
      .flatMap(({ text }) => text.trim().split('\n'));

  /** In the order of the page, for some change what later ones show. */
  const shows: Record<string, (string | RegExp)[]> = {
    'nats stream ls': [
      'GYMBUS_JOBS',
      'Jobs waiting or running: image, batch, job',
      'GYMBUS_RESULTS',
      'GYMBUS_EVENTS',
      'GYMBUS_DEAD',
    ],
    'nats stream subjects GYMBUS_JOBS': [
      /gymbus\.jobs\.debian-desktop\.night-42\.rename-0007 │ 1/,
      'gymbus.jobs.windows.day-7.a',
    ],
    // Consumer, mode, ack policy, ack wait, ack pending, redelivered, unprocessed: one runs, two wait.
    'nats consumer report GYMBUS_JOBS': [/debian-desktop~night-42 │ Pull │ Explicit +│ 30\.00s +│ 1 .*│ 0 +│ 2 /],
    'nats stream get GYMBUS_JOBS --last-for gymbus.jobs.debian-desktop.night-42.rename-0007': [
      'Nats-Msg-Id: night-42/rename-0007',
      '"instruction":"Rename the folder',
    ],
    "nats stream subjects GYMBUS_RESULTS 'gymbus.results.night-42.*'": [
      'gymbus.results.night-42.rename-0001',
      'gymbus.results.night-42.broken-0001',
    ],
    'nats stream get GYMBUS_RESULTS --last-for gymbus.results.night-42.rename-0001': [
      'GYMBUS_RESULTS#1',
      '"status":"completed"',
    ],
    'nats kv ls GYMBUS_RUNNERS': ['host-a'],
    'nats kv get GYMBUS_RUNNERS host-a --raw': ['"state":"holding"', 'disk: 1.2 GiB free'],
    'nats kv get GYMBUS_ATTEMPTS night-42.rename-0007 --raw': ['"attempt":"1-abcdefgh"'],
    'nats stream subjects GYMBUS_DEAD': ['gymbus.dead.debian-desktop.night-42.broken-0001'],
    'nats stream get GYMBUS_DEAD --last-for gymbus.dead.debian-desktop.night-42.broken-0001': [
      'Gymbus-Reason: policy.name: there is no policy "gpt"',
      'Gymbus-Class: invalid_job',
      '"job_id":"broken-0001"',
    ],
    "nats consumer pause GYMBUS_JOBS 'debian-desktop~night-42' 24h --force": [/[Pp]aused/],
    "nats consumer resume GYMBUS_JOBS 'debian-desktop~night-42' --force": [/resumed/],
    'nats kv put GYMBUS_BATCHES night-42 \'{"schema": "gymbus.batch.v1", "priority": 10}\'': ['"priority": 10'],
    'nats kv put GYMBUS_BATCHES night-42 \'{"schema": "gymbus.batch.v1", "cancelled": true}\'': ['"cancelled": true'],
    'nats pub -J -H Nats-Msg-Id:night-42/rename-0001/1 -H Gymbus-Supersedes:1 gymbus.jobs.debian-desktop.night-42.rename-0001 < job.json':
      [/Stored in Stream: GYMBUS_JOBS/],
  };

  it('is known here, and no other', () => expect(new Set(commandsOf('run'))).toEqual(new Set(Object.keys(shows))));

  it.each(commandsOf('run'))('%s', async (command) => {
    const job = sampleJob({ batch_id: 'night-42', job_id: 'rename-0001' });
    await writeFile(path.join(servers.nats.folder, 'job.json'), JSON.stringify(job));
    const { exitCode, all } = await shell(command, servers.nats.folder);
    expect(exitCode, all).toBe(0);
    for (const what of shows[command] ?? []) expect(all).toMatch(what);
  });

  it('has had the effect it is there for', async () => {
    const { bus } = servers;
    await using flags = new BatchFlags(bus);
    expect(await flags.isCancelled('night-42')).toBe(true);
    const again = bus.names.jobSubject({ ...NIGHT, job: 'rename-0001' });
    const message = await bus.jsm.streams.getMessage(bus.names.jobsStream, { last_by_subj: again });
    const outcome = await readOutcome(bus, 'night-42', 'rename-0001');
    expect(message?.header.get('Gymbus-Supersedes')).toBe(String(outcome?.seq));
    await remove('rename-0001');
  });

  it.each(commandsOf('run: follows'))('%s', async (command) => {
    const sub = execa('sh', ['-c', `exec ${command}`], {
      env,
      reject: false,
      all: true,
      buffer: false,
      timeout: 30_000,
    });
    const lines: string[] = [];
    // It says that it subscribes before the server knows.
    const telling = setInterval(() => (['started', 'committed'] as const).forEach(emit), 250);
    for await (const line of sub.iterable({ from: 'all' })) {
      lines.push(line);
      if (line.includes('"kind":"committed"')) break;
    }
    clearInterval(telling);
    sub.kill();
    await sub;
    expect(lines.join('\n')).toContain('Received on "gymbus.events.night-42.rename-0005.committed"');
    expect(lines.some((line) => line.includes('.started"'))).toBe(command.includes('events.>'));
  });
});

it('tables fit a terminal of 140 columns', async () => {
  for (const command of [
    'nats stream ls',
    'nats stream subjects GYMBUS_JOBS',
    'nats consumer report GYMBUS_JOBS',
    'nats kv ls',
  ]) {
    const { all } = await shell(command);
    expect(Math.max(...all.split('\n').map((line) => line.length)), all).toBeLessThanOrEqual(140);
  }
});

it('stream view pages through outcomes on a terminal', async () => {
  await using view = new Terminal(
    ['nats', 'stream', 'view', 'GYMBUS_RESULTS', '10', '--subject', 'gymbus.results.night-42.>'],
    { env },
  );
  await view.shows('gymbus.results.night-42.broken-0001');
  expect(view.text).toContain('"status":"completed"');
});

describe('what the README warns of is so', () => {
  it('nats consumer next acknowledges, unless told not to', async () => {
    const looking = { ...NIGHT, batch: 'looked-at' };
    await ensureConsumer(servers.bus, looking);
    for (const job of ['a', 'b']) await publish({ ...looking, job });
    const before = await jobsLeft(servers.bus);
    const looked = await shell("nats consumer next GYMBUS_JOBS 'debian-desktop~looked-at' --no-ack");
    expect(looked.exitCode, looked.all).toBe(0);
    expect(looked.all).toContain('"job_id":"a"');
    expect(await jobsLeft(servers.bus)).toBe(before);
    const taken = await shell("nats consumer next GYMBUS_JOBS 'debian-desktop~looked-at'");
    expect(taken.all).toContain('"job_id":"b"');
    await eventually(async () => (await jobsLeft(servers.bus)) === before - 1);
  });

  it('nats stream purge leaves no trace of a waiting job', async () => {
    const purged = await shell("nats stream purge GYMBUS_JOBS --subject 'gymbus.jobs.*.night-42.>' --force");
    expect(purged.exitCode, purged.all).toBe(0);
    const { bus } = servers;
    const subjects = await bus.jsm.streams.info(bus.names.jobsStream, { subjects_filter: 'gymbus.jobs.*.night-42.>' });
    expect(subjects.state.subjects).toBeUndefined();
    expect(await readOutcome(bus, 'night-42', 'rename-0007')).toBeNull();
  });

  it('nats pub without -J says Published and exits with 0 though the job is refused', async () => {
    const [subject, header] = ['gymbus.jobs.windows.day-7.a', 'Nats-Msg-Id:another'];
    const quiet = await shell(`nats pub -H ${header} ${subject} '{}'`);
    expect({ exitCode: quiet.exitCode, said: quiet.all }).toEqual({
      exitCode: 0,
      said: expect.stringContaining('Published'),
    });
    const told = await shell(`nats pub -J -H ${header} ${subject} '{}'`);
    expect(told.exitCode, told.all).not.toBe(0);
    expect(told.all).toContain('maximum messages per subject exceeded');
  });
});
