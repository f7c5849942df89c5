import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { natsServerConfig } from '../../infra/nats-config.ts';
import { readBatch, updateBatch } from '../../runner/bus/batch-flags.ts';
import { Batches } from '../../runner/bus/batches.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { Events } from '../../runner/bus/events.ts';
import { Heartbeat } from '../../runner/bus/heartbeat.ts';
import { type Bus, openBus } from '../../runner/bus/index.ts';
import { Deliveries } from '../../runner/host/deliveries.ts';
import { pullLoop } from '../../runner/host/pull-loop.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import type { TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { runGymbus } from '../support/command.ts';
import { DeskPool, TestRunner } from '../support/delivery.ts';
import { recordingLog, startNats } from '../support/nats.ts';
import { natsCliEnv } from '../support/nats-cli.ts';
import { type OperatedNats, startOperatedNats } from '../support/nats-operator.ts';
import {
  covers,
  FORBIDDEN,
  permissionsFolder,
  permissionsOf,
  ROLES,
  type Role,
  refused,
  UNHEARD,
} from '../support/nats-roles.ts';
import { blocksOf, readmeFile, rowsBelow } from '../support/readme.ts';
import { never, openPlace, type TestPlace } from '../support/recording.ts';
import { sampleJob, sampleStatus } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

/*
 * A runner, a publisher and a reader, each with the rights of its role and no others, on a server that keeps an account of
 * the subjects used. Played in the order written.
 */
let nats: OperatedNats;
let s3: Awaited<ReturnType<typeof startVersitygw>>;
let place: TestPlace;
let folder: string;
/** Everything is allowed to it: it looks on. */
let onlooker: Bus;
const credentials = {} as Record<Role, string>;
const used: Record<Role, Set<string>> = { publisher: new Set(), runner: new Set(), reader: new Set() };
let working: Role = 'runner';

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-roles-'));
  nats = await startOperatedNats();
  for (const role of ROLES) credentials[role] = await nats.credentials(role, permissionsOf(role));
  onlooker = await open(await nats.credentials('onlooker'));
  s3 = await startVersitygw();
  place = await openPlace(s3);
  await waitForStorage(place.store, place.log, { createBucket: true, signal: never });
  onlooker.nc.subscribe('>', { callback: (_, { subject }) => void used[working].add(subject) });
});
afterAll(async () => {
  await place?.[Symbol.asyncDispose]();
  await s3?.stop();
  await onlooker?.[Symbol.asyncDispose]();
  await nats?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const complaints: string[] = [];
function open(credentialsFile: string): Promise<Bus> {
  const { log, lines } = recordingLog();
  return openBus({ servers: [nats.server.url], name: 'test', patienceMs: 5_000, log, credentialsFile }).then((bus) => {
    // Whatever the server refused is told by it, also where nobody waits for an answer.
    const dispose = bus[Symbol.asyncDispose].bind(bus);
    bus[Symbol.asyncDispose] = async () => {
      await dispose();
      for (const { err } of lines())
        if (/[Pp]ermission/.test(JSON.stringify(err ?? ''))) complaints.push(JSON.stringify(err));
    };
    return bus;
  });
}

const as = (role: Role) => open(credentials[role]);
const env = (role: Role) => ({ NATS_URL: nats.server.url, NATS_CREDS: credentials[role], GYMBUS_DATA: folder });
const submit = (jobs: TrajectoryJobInput[]) =>
  runGymbus(['submit', '-'], env('publisher'), { input: jobs.map((job) => JSON.stringify(job)).join('\n') });
const jobOf = (batch_id: string, job_id: string, over: Partial<TrajectoryJobInput> = {}) =>
  sampleJob({
    ...{ batch_id, job_id },
    policy: { name: 'scripted', params: { actions: [{ type: 'type', text: 'hello' }, { type: 'done' }] } },
    ...over,
  });

describe('with the rights of its role and no others', () => {
  it('a runner makes the streams', async () => {
    await using bus = await as('runner');
    expect(await ensureStreams(bus)).toHaveLength(7);
    expect(await ensureStreams(bus)).toEqual([]);
  });

  it('a publisher submits jobs, is told of those that are queued, sets a priority and cancels', async () => {
    working = 'publisher';
    const jobs = [jobOf('night-42', 'a'), jobOf('night-42', 'b'), jobOf('stopped', 'a')];
    expect((await submit(jobs)).stdout).toContain('3 queued');
    expect(await submit(jobs)).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('3 were in the queue') });
    await using bus = await as('publisher');
    await using admin = await open(await nats.credentials('admin'));
    await updateBatch(admin, 'stopped', { priority: 1 });
    await bus.js.publish('$KV.GYMBUS_BATCHES.stopped', '{"schema": "gymbus.batch.v1", "cancelled": true}');
    expect(await readBatch(admin, 'stopped')).toMatchObject({ cancelled: true });
    await bus.js.publish('gymbus.jobs.debian-desktop.broken.a', 'not JSON', { msgID: 'broken/a' });
  });

  it('a runner beats, finds the jobs, plays them, commits, writes dead letters, sees what is cancelled', async () => {
    working = 'runner';
    await using bus = await as('runner');
    await using _heartbeat = new Heartbeat(bus, 'host-a', () => sampleStatus());
    // One that another made otherwise is looked at.
    await ensureConsumer(bus, { image: 'debian-desktop', batch: 'elsewhere' }, 10_000);
    expect(await ensureConsumer(bus, { image: 'debian-desktop', batch: 'elsewhere' })).toMatchObject({
      ackWaitMs: 10_000,
    });
    const events = new Events(bus);
    const emit: TestRunner['player']['emit'] = (kind, { batch, job }, attempt, data) =>
      events.emit({
        ...{ schema: 'gymbus.event.v1', kind, batch_id: batch, job_id: job, attempt, runner: 'host-a', data },
        at: new Date().toISOString(),
      });
    const servers = { nats: nats.server, bus, s3, place, env: {}, [Symbol.asyncDispose]: async () => undefined };
    await using runner = new TestRunner(servers, place, { emit });
    using batches = new Batches(bus, { images: ['debian-desktop'], scanMs: 200 });
    const deliveries = new Deliveries(runner.player);
    const pulling = new AbortController();
    const loop = pullLoop('debian-desktop', {
      ...{ batches, pool: new DeskPool(2), signal: pulling.signal, onLook: () => undefined },
      look: async () => ({ reason: null, diskFreeBytes: 0 }),
      play: (taken, reservation) => deliveries.play(taken, reservation),
    });
    const left = async () => (await onlooker.jsm.streams.info('GYMBUS_JOBS')).state.messages;
    await eventually(async () => (await left()) === 0, 30_000);
    pulling.abort();
    await loop;
    await deliveries.drain(20_000, never);
    const outcomes = new Map<string, string>();
    for (const job of ['night-42.a', 'night-42.b', 'stopped.a', 'broken.a']) {
      const last = { last_by_subj: `gymbus.results.${job}` };
      const message = await onlooker.jsm.streams.getMessage('GYMBUS_RESULTS', last);
      outcomes.set(job, message?.json<{ status: string }>().status ?? 'none');
    }
    expect(Object.fromEntries(outcomes)).toEqual({
      ...{ 'night-42.a': 'completed', 'night-42.b': 'completed', 'stopped.a': 'cancelled', 'broken.a': 'dead' },
    });
    expect((await onlooker.jsm.streams.info('GYMBUS_DEAD')).state.messages).toBe(1);
    expect((await onlooker.jsm.streams.info('GYMBUS_EVENTS')).state.messages).toBeGreaterThan(10);
  });

  it('a publisher is told that a job is done', async () => {
    working = 'publisher';
    const { exitCode, stdout } = await submit([jobOf('night-42', 'a'), jobOf('night-42', 'c')]);
    expect({ exitCode, stdout }).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('1 done before') });
  });

  it('a reader watches, reads results, and looks with the commands of the README', async () => {
    working = 'reader';
    await ensureConsumer(onlooker, { image: 'debian-desktop', batch: 'night-42' });
    await using _heartbeat = new Heartbeat(onlooker, 'host-a', () =>
      sampleStatus({ state: 'holding', reason: 'full' }),
    );
    await eventually(async () => (await onlooker.jsm.streams.info('KV_GYMBUS_RUNNERS')).state.messages > 0);
    const watched = await runGymbus(['watch', 'night-42', '--once'], env('reader'));
    expect(watched.stdout, watched.stderr).toContain('2 done, 0 running, 1 waiting; runner host-a is holding');
    const results = await runGymbus(['results', 'night-42', '--json'], env('reader'));
    expect(results.exitCode, results.stderr).toBe(0);
    expect(JSON.parse(results.stdout)).toHaveLength(2);

    const page = await readFile(readmeFile, 'utf8');
    const looks = blocksOf(page)
      .filter(({ mark }) => mark === 'run')
      .flatMap(({ text }) => text.trim().split('\n'))
      .filter((command) => /^nats (stream|consumer|kv) (ls|subjects|report|get) /.test(`${command} `))
      .map((command) => command.replaceAll('rename-0007', 'c').replaceAll(/rename-0001|broken-0001/g, 'a'))
      .map((command) => command.replace('ATTEMPTS night-42.c', 'ATTEMPTS night-42.a'))
      .map((command) => command.replace('gymbus.dead.debian-desktop.night-42', 'gymbus.dead.debian-desktop.broken'));
    expect(looks.length).toBeGreaterThan(8);
    const shell = { ...(await natsCliEnv(nats.server.url, nats.server.folder)), NATS_CREDS: credentials.reader };
    for (const command of looks) {
      const { exitCode, all } = await execa('sh', ['-c', command], {
        env: shell,
        reject: false,
        all: true,
        stdin: 'ignore',
      });
      expect(exitCode, `${command}\n${all}`).toBe(0);
    }
    await using bus = await as('reader');
    // As `nats stream view` and other clients read outcomes: with a consumer that they name.
    const named = { name: 'mine', ack_policy: 'none', filter_subject: 'gymbus.results.night-42.*' } as const;
    expect(await bus.jsm.consumers.add('GYMBUS_RESULTS', named)).toMatchObject({ num_pending: 2 });
    expect(await bus.jsm.consumers.delete('GYMBUS_RESULTS', 'mine')).toBe(true);
    for (const subject of ['gymbus.events.>', 'gymbus.results.night-42.*', 'gymbus.queued.>', 'gymbus.dead.>'])
      expect(await refused(bus.nc, 'subscription', subject), subject).toBe(false);
  });

  it('none was refused anything', () => expect(complaints).toEqual([]));
});

/** What is in no test above: by reason. */
const RARE = [
  // Told when the subjects of a stream belong to another one.
  '$JS.API.STREAM.NAMES',
  // The server's questions whether a slow watcher keeps up; a JetStream domain; a consumer lost in an outage.
  ...['$JS.FC.>', '$JS.ACK.*.*.GYMBUS_JOBS.>'],
  ...['$JS.API.CONSUMER.INFO.KV_GYMBUS_BATCHES.*', '$JS.API.CONSUMER.DELETE.KV_GYMBUS_BATCHES.*'],
  // By people, with the nats command.
  ...['$JS.API.CONSUMER.NAMES.*', '$JS.API.CONSUMER.INFO.*.*'],
];

it.each(ROLES)('%s: every right is one that was used', (role) => {
  const unused = permissionsOf(role).publish.allow.filter((right) => ![...used[role]].some((it) => covers(right, it)));
  expect(unused.filter((right) => !RARE.includes(right))).toEqual([]);
});

describe.each(ROLES)('a %s', (role) => {
  it('is refused what is for others', async () => {
    const { log } = recordingLog();
    await using bus = await openBus({
      servers: [nats.server.url],
      name: role,
      log,
      credentialsFile: credentials[role],
    });
    for (const subject of [...FORBIDDEN.all, ...FORBIDDEN[role]])
      expect(await refused(bus.nc, 'publish', subject), subject).toBe(true);
    for (const subject of UNHEARD[role]) expect(await refused(bus.nc, 'subscription', subject), subject).toBe(true);
  });

  it('is told, by a command that is not for it, what the server refuses', async () => {
    const call = { publisher: ['results', 'night-42'], runner: ['results', 'night-42'], reader: ['submit', '-'] }[role];
    const { exitCode, stderr } = await runGymbus(call, env(role), { input: JSON.stringify(jobOf('night-42', 'd')) });
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(
      /nats-server allows this user no publish to \S+; give it the rights of its role: infra\/nats\/permissions/,
    );
    expect(stderr).not.toContain('    at ');
  });
});

it('the README has a row for each, and S3 a policy', async () => {
  const rows = rowsBelow(await readFile(readmeFile, 'utf8'), 'table of roles');
  expect(rows.map(([role]) => role)).toEqual(ROLES.map((role) => `\`${role}\``));
  for (const role of ROLES)
    expect(existsSync(path.join(permissionsFolder, `../../s3/policies/${role}.json`))).toBe(true);
});

it('nats-server reads the files as they are, as the README includes them', async () => {
  const block = blocksOf(await readFile(readmeFile, 'utf8')).find(({ mark }) => mark === 'nats-server: roles');
  const config = (port: number, storeDir: string) => {
    const from = path.relative(path.dirname(storeDir), permissionsFolder);
    const users = block?.text.replaceAll('include permissions', `include ${from}`) ?? '';
    const passwords = users.replaceAll(/\$([A-Z]+)_PASSWORD/g, (_, role: string) => role.toLowerCase());
    return natsServerConfig({ host: '127.0.0.1', port, storeDir }) + passwords;
  };
  await using server = await startNats({ config });
  for (const role of ROLES) {
    await using bus = await openBus({
      ...{ servers: [server.url], name: role, log: recordingLog().log, user: role, password: role },
    });
    const mayPublish = !(await refused(bus.nc, 'publish', 'gymbus.jobs.i.b.j'));
    const mayCommit = !(await refused(bus.nc, 'publish', 'gymbus.results.b.j'));
    expect({ mayPublish, mayCommit }).toEqual({ mayPublish: role === 'publisher', mayCommit: role === 'runner' });
  }
});
