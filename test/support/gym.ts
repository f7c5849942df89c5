import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PubAck } from '@nats-io/jetstream';
import { headers as newHeaders } from '@nats-io/transport-node';
import { execa } from 'execa';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import type { Bus } from '../../runner/bus/index.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { reapOwned } from '../../runner/replica/reap.ts';
import { openArea, type StorageArea } from '../../runner/storage/area.ts';
import { ObjectStore } from '../../runner/storage/s3.ts';
import { lockFile } from '../../runner/system/lock.ts';
import { type JobAddress, messageId, type TrajectoryJobInput } from '../../schemas/index.ts';
import { cgroupsOf } from './cgroups.ts';
import { EventLog } from './event-log.ts';
import { cacheDir, type NatsServer, openTestBus, startNats } from './nats.ts';
import { gymbusCommand, RunnerProcess } from './runner-process.ts';
import { type S3Proxy, startS3Proxy } from './s3-proxy.ts';
import { testDataDir } from './test-data.ts';
import { startVersitygw } from './versitygw.ts';

export { testDataDir };

const IMAGE = 'debian-desktop';
/** Another run of these tests on the same machine waits for its turn. */
const TURN_MS = 8 * 60_000;
const GONE_MS = 15_000;
/** An image of a gigabyte is pushed in a minute, on a busy machine in several. */
const CLI_MS = 10 * 60_000;

/** Everything around runners: a bus and an S3 of their own, and a host's data directory. */
export interface TestGym extends AsyncDisposable {
  nats: NatsServer;
  s3: Awaited<ReturnType<typeof startVersitygw>>;
  /** Between the runners and S3. */
  proxy: S3Proxy;
  bus: Bus;
  /** Past the proxy. */
  store: ObjectStore;
  events: EventLog;
  dataDir: string;
  area: StorageArea;
  /** A runner that was started and not waited for. It ends with the gym at the latest. */
  spawn(id: string, env?: Record<string, string>): RunnerProcess;
  /** A runner that pulls. */
  start(id: string, env?: Record<string, string>): Promise<RunnerProcess>;
  /** The last that each live runner said, for a test that fails. */
  tails(): string;
  /** Makes a batch's durable beforehand, so that a lost holder's job comes again within seconds. */
  leaseOf(batch: string, ackWaitMs: number): Promise<void>;
  publish(job: TrajectoryJobInput, options?: PublishOptions): Promise<PubAck>;
  /** Runs a `gymbus` command against this bus and S3. */
  cli(...args: string[]): Promise<{ stdout: string; stderr: string; exitCode: number | undefined }>;
}

export interface PublishOptions {
  /** The n-th time within the server's memory of ids. */
  n?: number;
  headers?: Record<string, string>;
}

/** @param dataDir of the runners; the shared one by default */
export async function openGym({ dataDir = testDataDir } = {}): Promise<TestGym> {
  const releases: (() => unknown)[] = [];
  const release = async (): Promise<void> => {
    for (let last = releases.pop(); last; last = releases.pop()) await last();
  };
  try {
    return await open(dataDir, releases, release);
  } catch (error) {
    await release();
    throw error;
  }
}

async function open(dataDir: string, releases: (() => unknown)[], release: () => Promise<void>): Promise<TestGym> {
  await mkdir(dataDir, { recursive: true });
  const turn = await lockFile(path.join(dataDir, 'test.lock'), { waitMs: TURN_MS });
  releases.push(() => turn[Symbol.asyncDispose]());
  const nats = await startNats();
  releases.push(() => nats[Symbol.asyncDispose]());
  const bus = await openTestBus(nats);
  releases.push(() => bus[Symbol.asyncDispose]());
  const s3 = await startVersitygw();
  releases.push(() => s3.stop());
  const proxy = await startS3Proxy(s3.port);
  releases.push(() => proxy[Symbol.asyncDispose]());
  const store = new ObjectStore({
    endpoint: s3.endpoint,
    region: 'us-east-1',
    bucket: 'gymbus',
    credentials: s3.credentials,
  });
  releases.push(() => store[Symbol.dispose]());
  const area = await openArea({ dataDir, floorBytes: 2 ** 30 });
  releases.push(() => leave(area));

  const runners: RunnerProcess[] = [];
  releases.push(() => expectNothingLeft(dataDir, area, runners));
  const clientEnv = {
    NATS_URL: nats.url,
    AWS_ENDPOINT_URL: proxy.endpoint,
    AWS_ACCESS_KEY_ID: s3.credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
  };
  const spawn = (name: string, env: Record<string, string> = {}): RunnerProcess => {
    const runner = new RunnerProcess({
      id: `${name}-${process.pid}`,
      areaPath: area.path,
      env: {
        ...clientEnv,
        GYMBUS_DATA: dataDir,
        GYMBUS_CACHE: cacheDir,
        GYMBUS_IMAGES: process.env.GYMBUS_IMAGES ?? IMAGE,
        GYMBUS_ACTING: '1',
        GYMBUS_READY: '1',
        GYMBUS_DISK_FLOOR_GIB: '1',
        GYMBUS_DOWNLOAD_PRIVATE: 'yes',
        ...env,
      },
    });
    runners.push(runner);
    return runner;
  };
  const events = new EventLog(bus);
  releases.push(() => events[Symbol.dispose]());
  return {
    ...{ nats, s3, proxy, bus, store, events, dataDir, area, spawn },
    start: (name, env) => spawn(name, env).ready(),
    tails: () =>
      runners
        .filter(({ running }) => running)
        .map((runner) => `${runner.id}:\n${runner.tail()}`)
        .join('\n'),
    leaseOf: async (batch, ackWaitMs) => void (await ensureConsumer(bus, { image: IMAGE, batch }, ackWaitMs)),
    cli: (...args) => runCli(args, clientEnv),
    publish: (job, options) => publish(bus, addressOf(job), Buffer.from(JSON.stringify(job)), options),
    [Symbol.asyncDispose]: release,
  };
}

async function runCli(args: readonly string[], env: Record<string, string>) {
  const options = { env, reject: false, stdin: 'ignore', timeout: CLI_MS } as const;
  const { stdout, stderr, exitCode } = await execa(process.execPath, [gymbusCommand, ...args], options);
  return { stdout, stderr, exitCode };
}

export function addressOf({ image, batch_id, job_id }: TrajectoryJobInput): JobAddress {
  return { image, batch: batch_id, job: job_id };
}

/** As a foreign publisher does it: any bytes on a job's subject. */
export function publish(
  bus: Bus,
  address: JobAddress,
  body: Uint8Array,
  options: PublishOptions = {},
): Promise<PubAck> {
  const headers = newHeaders();
  for (const [name, value] of Object.entries(options.headers ?? {})) headers.set(name, value);
  return bus.js.publish(bus.names.jobSubject(address), body, {
    msgID: messageId(address.batch, address.job, options.n),
    headers,
  });
}

/** The last to leave unmounts it; whoever was killed in it may need a moment to be gone. */
async function leave(area: StorageArea): Promise<void> {
  await area[Symbol.asyncDispose]();
  const mounted = async () => (await stat(area.path)).dev !== (await stat(path.dirname(area.path))).dev;
  for (const endMs = performance.now() + GONE_MS; await mounted(); await sleep(50)) {
    if (performance.now() > endMs)
      throw new Error(`${area.path} is still mounted: something of a runner is left in it`);
    await execa('umount', [area.path], { reject: false });
  }
}

/** Ends what still runs; what a runner that stopped by itself left behind is a fault. */
async function expectNothingLeft(dataDir: string, area: StorageArea, runners: readonly RunnerProcess[]): Promise<void> {
  const endedBefore = new Set(runners.filter(({ running }) => !running).map(({ id }) => id));
  await Promise.all(runners.map((runner) => runner[Symbol.asyncDispose]()));
  const left: string[] = [];
  for (const id of new Set(runners.map((runner) => runner.id))) {
    const folder = path.join(area.path, 'runners', id);
    const replicas = await readdir(path.join(folder, 'replicas')).catch(() => []);
    const spooled = await readdir(path.join(folder, 'spool')).catch(() => []);
    await untilGone(replicas);
    // Of a runner that was killed last of all, nobody was to clear up.
    const last = runners.findLast((runner) => runner.id === id);
    const killed = last === undefined || !endedBefore.has(id) || (await last.exited).signal !== null;
    if (!killed) left.push(...[...replicas, ...spooled, ...(await cgroupsOf(id))].map((name) => `${id}: ${name}`));
    await reapOwned(area.path, id);
    left.push(...(await cgroupsOf(id)).map((name) => `${id}: ${name}, not on record`));
    await rm(folder, { recursive: true, force: true });
    await rm(path.join(dataDir, 'runners', `${id}.lock`), { force: true });
  }
  if (left.length > 0) throw new Error(`runners left behind:\n  ${left.join('\n  ')}`);
}

/** A machine dies with its runner, however that went. */
async function untilGone(uuids: readonly string[]): Promise<void> {
  for (const endMs = performance.now() + GONE_MS; ; await sleep(50)) {
    const alive = (await qemuProcesses()).filter(({ uuid }) => uuids.includes(uuid));
    if (alive.length === 0) return;
    if (performance.now() > endMs) throw new Error(`machines outlive their runner: ${alive.map(({ pid }) => pid)}`);
  }
}
