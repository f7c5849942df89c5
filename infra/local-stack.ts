import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import type { Logger } from 'pino';
import { lockFile } from '../runner/system/lock.ts';
import { ChildServer, signalProcess } from './child-server.ts';
import { natsServerConfig } from './nats-config.ts';
import { choosePort } from './ports.ts';
import { readJson, writePrivate } from './private-file.ts';
import { identify, stillRuns } from './process-identity.ts';
import { type Secrets, stackSecrets } from './secrets.ts';
import { httpAnswers, natsAnswers, ServersFile, type StackAddress, type StackFile, stackFile } from './stack-file.ts';
import { ensureTool } from './tools.ts';

/*
 * The local stack: a nats-server and a versitygw, each a child of this process with its data below
 *
 *   <data>/stack/nats      configuration (it holds a password) and JetStream's files
 *   <data>/stack/s3        a folder a bucket, a file an object
 *   <data>/stack/*.log     what the servers say, and said the time before (.1)
 *   <data>/stack/secrets.json, servers.json, lock
 *   <data>/stack.json      how to reach it, while it runs
 *
 * Both listen on loopback only. One stack a data directory: a lock that the kernel gives back says so.
 */

export interface LocalStackSettings {
  dataDir: string;
  cacheDir: string;
  log: Logger;
  /** A port is fixed, or 0 for any free one. By default the usual one (4222, 7070) if free, else any. */
  ports?: { nats?: number | undefined; s3?: number | undefined };
  bucket?: string;
  signal?: AbortSignal | undefined;
}

export interface LocalStack extends StackAddress, AsyncDisposable {
  /** Aborted with `ServerFailed` when a server ends by itself. */
  readonly failed: AbortSignal;
  /** Ends both servers and removes `stack.json`. Idempotent; data stays. */
  stop(): Promise<void>;
}

const NATS_PORT = 4222;
const S3_PORT = 7070;
const NATS_USER = 'gymbus';
const REGION = 'us-east-1';
/** JetStream reads its files before it listens; a large store on a slow disk takes a while. */
const NATS_READY_MS = 120_000;
const S3_READY_MS = 30_000;
/** A left-over server is asked to end for so long, then killed. */
const STALE_MS = 5_000;

/**
 * Starts both servers and makes the bucket, building what is missing first.
 * @throws ToolMissing, PortTaken, LockHeld, ServerFailed, or the signal's reason; nothing is left running then
 */
export async function startLocalStack(settings: LocalStackSettings): Promise<LocalStack> {
  const { dataDir, cacheDir, log, signal, bucket = 'gymbus' } = settings;
  const folder = path.join(dataDir, 'stack');
  await mkdir(path.join(folder, 's3'), { recursive: true, mode: 0o700 });
  await mkdir(path.join(folder, 'nats'), { recursive: true, mode: 0o700 });
  const building = { cacheDir, signal };
  const natsServer = await ensureTool('nats-server', building);
  const versitygw = await ensureTool('versitygw', building);

  const releases: AsyncDisposable[] = [];
  const releaseAll = async () => {
    for (let last = releases.pop(); last; last = releases.pop()) await last[Symbol.asyncDispose]();
  };
  try {
    const held = `another gymbus stack runs with the data directory ${dataDir}; stop it, or choose another (GYMBUS_DATA)`;
    releases.push(await lockFile(path.join(folder, 'lock'), { waitMs: 0, held, signal }));
    await endStale(folder, log);
    const secrets = await stackSecrets(path.join(folder, 'secrets.json'));
    const natsPort = await choosePort('nats-server', settings.ports?.nats, NATS_PORT);
    const s3Port = await choosePort('versitygw', settings.ports?.s3, S3_PORT);
    const [nats, s3] = await startBoth(
      startNats({ binary: natsServer, folder, port: natsPort, secrets, signal }),
      startS3({ binary: versitygw, folder, port: s3Port, secrets, signal }),
    );
    releases.push(nats, s3);
    await writePrivate(
      serversFile(folder),
      JSON.stringify([nats, s3].map(({ name, identity }) => ({ name, ...identity }))),
    );
    const address: StackAddress = {
      natsUrl: `nats://${NATS_USER}:${secrets.natsPassword}@127.0.0.1:${natsPort}`,
      s3: {
        endpoint: `http://127.0.0.1:${s3Port}`,
        region: REGION,
        accessKeyId: secrets.s3AccessKeyId,
        secretAccessKey: secrets.s3SecretAccessKey,
        bucket,
      },
    };
    await makeBucket(address.s3);
    releases.push(await publishAddress(dataDir, address));
    log.info({ nats_port: natsPort, s3_port: s3Port, data: folder }, 'local stack runs');
    // One may have ended already.
    const failed = AbortSignal.any([nats.failed, s3.failed]);
    failed.throwIfAborted();
    failed.addEventListener('abort', () => log.error({ err: failed.reason }, 'a server of the local stack ended'));
    signal?.throwIfAborted();
    let stopping: Promise<void> | undefined;
    const stop = () => {
      stopping ??= releaseAll();
      return stopping;
    };
    return { ...address, failed, stop, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await releaseAll();
    throw error;
  }
}

/** What a server is started with. */
interface Place {
  binary: string;
  folder: string;
  port: number;
  secrets: Secrets;
  signal: AbortSignal | undefined;
}

async function startNats({ binary, folder, port, secrets, signal }: Place): Promise<ChildServer> {
  const config = path.join(folder, 'nats', 'server.conf');
  const text = natsServerConfig({
    host: '127.0.0.1',
    port,
    storeDir: path.join(folder, 'nats'),
    serverName: 'gymbus-local',
    users: [{ user: NATS_USER, password: secrets.natsPassword }],
  });
  await writePrivate(config, text);
  return ChildServer.start({
    name: 'nats-server',
    binary,
    args: ['-c', config],
    logFile: path.join(folder, 'nats-server.log'),
    probe: () => natsAnswers(port),
    readyMs: NATS_READY_MS,
    signal,
  });
}

function startS3({ binary, folder, port, secrets, signal }: Place): Promise<ChildServer> {
  return ChildServer.start({
    name: 'versitygw',
    binary,
    args: ['--port', `127.0.0.1:${port}`, '--region', REGION, '--quiet', 'posix', path.join(folder, 's3')],
    // Not among the arguments: those are everybody's to read.
    env: { ROOT_ACCESS_KEY: secrets.s3AccessKeyId, ROOT_SECRET_KEY: secrets.s3SecretAccessKey },
    logFile: path.join(folder, 'versitygw.log'),
    probe: () => httpAnswers(`http://127.0.0.1:${port}/`),
    readyMs: S3_READY_MS,
    signal,
  });
}

/** Both at once; when one fails, the other is stopped. */
async function startBoth(...starting: Promise<ChildServer>[]): Promise<[ChildServer, ChildServer]> {
  const results = await Promise.allSettled(starting);
  const servers = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  const [first, second] = servers;
  if (first && second) return [first, second];
  await Promise.all(servers.map((server) => server.stop()));
  throw results.find((result) => result.status === 'rejected')?.reason;
}

async function makeBucket(s3: StackAddress['s3']): Promise<void> {
  const { accessKeyId, secretAccessKey } = s3;
  // The SDK is pinned: that its later versions want a later Node is nothing for a terminal.
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= 'true';
  const client = new S3Client({
    endpoint: s3.endpoint,
    region: s3.region,
    forcePathStyle: true,
    credentials: { accessKeyId, secretAccessKey },
  });
  try {
    await client.send(new CreateBucketCommand({ Bucket: s3.bucket }));
  } catch (error) {
    const { name } = error as Error;
    if (name !== 'BucketAlreadyOwnedByYou' && name !== 'BucketAlreadyExists') {
      throw new Error(
        `cannot make the bucket ${s3.bucket} (${name}: ${(error as Error).message}); the data directory must allow user extended attributes, as ext4 and XFS do`,
        { cause: error },
      );
    }
  } finally {
    client.destroy();
  }
}

async function publishAddress(dataDir: string, address: StackAddress): Promise<AsyncDisposable> {
  const self = await identify(process.pid);
  if (self === null) throw new Error('this process is not to be found in /proc');
  const { pid, startTicks, bootId } = self;
  const owner = { pid, startTicks, bootId };
  const file = stackFile(dataDir);
  const content: StackFile = { schema: 'gymbus.stack.v1', owner, ...address };
  await writePrivate(file, `${JSON.stringify(content, null, 2)}\n`);
  return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
}

function serversFile(folder: string): string {
  return path.join(folder, 'servers.json');
}

/** Ends what a killed stack left behind, if anything: the very processes it started, and no others. */
async function endStale(folder: string, log: Logger): Promise<void> {
  const servers = await readJson(serversFile(folder), (value) => ServersFile.parse(value));
  for (const server of servers ?? []) {
    if (!(await stillRuns(server))) continue;
    log.warn({ name: server.name, pid: server.pid }, 'ending a server that a killed stack left behind');
    signalProcess(server.pid, 'SIGTERM');
    for (const endMs = performance.now() + STALE_MS; await stillRuns(server); await sleep(50)) {
      if (performance.now() > endMs) signalProcess(server.pid, 'SIGKILL');
    }
  }
  await rm(serversFile(folder), { force: true });
}
