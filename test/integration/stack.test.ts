import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { GetObjectCommand, ListBucketsCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { execa } from 'execa';
import { expect, it } from 'vitest';
import { type LocalStack, startLocalStack } from '../../infra/local-stack.ts';
import { identify, stillRuns } from '../../infra/process-identity.ts';
import { findStack, ServersFile, stackEnvironment, stackFile } from '../../infra/stack-file.ts';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { openBus } from '../../runner/bus/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { cacheDir, recordingLog, silent } from '../support/nats.ts';

const free = { nats: 0, s3: 0 };

async function temporaryFolder() {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-stack-'));
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) };
}

function s3Of(stack: LocalStack): S3Client {
  const { endpoint, region, accessKeyId, secretAccessKey } = stack.s3;
  return new S3Client({ endpoint, region, forcePathStyle: true, credentials: { accessKeyId, secretAccessKey } });
}

async function serversOf(dataDir: string): Promise<ServersFile> {
  return ServersFile.parse(JSON.parse(await readFile(path.join(dataDir, 'stack/servers.json'), 'utf8')));
}

it('runs both servers, and keeps secrets and data from one run to the next', async () => {
  await using data = await temporaryFolder();
  const dataDir = data.folder;
  expect(await findStack(dataDir)).toBeNull();
  const first = await startLocalStack({ dataDir, cacheDir, log: silent, ports: free });
  const servers = await serversOf(dataDir);
  {
    await using bus = await openBus({ servers: [first.natsUrl], name: 'test', log: silent, patienceMs: 0 });
    expect(await ensureStreams(bus)).toHaveLength(7);
    await using open = await openBus({ servers: [first.natsUrl], name: 'test', log: silent, patienceMs: 0 });
    await open.js.publish(open.names.jobSubject({ image: 'i', batch: 'b', job: 'j' }), 'kept');
  }
  const s3 = s3Of(first);
  await s3.send(new PutObjectCommand({ Bucket: first.s3.bucket, Key: 'a/b', Body: 'kept' }));
  const { natsUrl, s3: s3Address } = first;
  expect(await findStack(dataDir)).toEqual({ natsUrl, s3: s3Address });
  expect((await stat(stackFile(dataDir))).mode & 0o777).toBe(0o600);
  expect((await stat(path.join(dataDir, 'stack/secrets.json'))).mode & 0o777).toBe(0o600);
  expect((await stat(path.join(dataDir, 'stack/nats/server.conf'))).mode & 0o777).toBe(0o600);
  // A server's arguments are everybody's to read.
  for (const { argv } of servers) expect(argv?.join(' ')).not.toContain(first.s3.secretAccessKey);
  await first.stop();
  await first.stop();
  expect(await findStack(dataDir)).toBeNull();
  for (const server of servers) expect(await stillRuns(server)).toBe(false);
  expect(first.failed.aborted).toBe(false);

  await using second = await startLocalStack({ dataDir, cacheDir, log: silent, ports: free });
  expect(second.s3.secretAccessKey).toBe(first.s3.secretAccessKey);
  const object = await s3Of(second).send(new GetObjectCommand({ Bucket: second.s3.bucket, Key: 'a/b' }));
  expect(await object.Body?.transformToString()).toBe('kept');
  await using bus = await openBus({ servers: [second.natsUrl], name: 'test', log: silent, patienceMs: 0 });
  expect((await bus.jsm.streams.info(bus.names.jobsStream)).state.messages).toBe(1);
});

it('lets nobody in without its secrets, and is reached with what gymbus env prints', async () => {
  await using data = await temporaryFolder();
  await using stack = await startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free });
  const { port } = new URL(stack.natsUrl);
  await expect(openBus({ servers: [`127.0.0.1:${port}`], name: 'test', log: silent })).rejects.toThrow(
    'refuses these credentials',
  );
  expect((await fetch(`${stack.s3.endpoint}/${stack.s3.bucket}`)).status).toBe(403);
  const env = stackEnvironment(stack);
  expect(Object.keys(env)).toEqual([
    'NATS_URL',
    'AWS_ENDPOINT_URL',
    'AWS_ACCESS_KEY_ID',
    'AWS_SECRET_ACCESS_KEY',
    'AWS_REGION',
    'GYMBUS_BUCKET',
  ]);
  const nats = path.join(cacheDir, 'bin/nats-0.5.0/nats');
  const listed = await execa(nats, ['stream', 'ls'], { env, reject: false, all: true });
  expect(listed.exitCode, listed.all).toBe(0);
  // The SDK as any program uses it: everything from the environment.
  const script = `import { S3Client, ListBucketsCommand } from '@aws-sdk/client-s3';
    const { Buckets } = await new S3Client({ forcePathStyle: true }).send(new ListBucketsCommand({}));
    console.log(Buckets.map(({ Name }) => Name).join());`;
  const buckets = await execa('node', ['--input-type=module', '-e', script], {
    env,
    cwd: path.resolve(import.meta.dirname, '../..'),
  });
  expect(buckets.stdout).toBe('gymbus');
  expect((await s3Of(stack).send(new ListBucketsCommand({}))).Buckets).toHaveLength(1);
});

it('names a port that is taken, and what to do', async () => {
  await using data = await temporaryFolder();
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const taken = (other.address() as { port: number }).port;
  try {
    const start = (ports: { nats?: number; s3?: number }) =>
      startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports });
    await expect(start({ nats: taken, s3: 0 })).rejects.toThrow(`port ${taken} for nats-server is in use`);
    await expect(start({ nats: 0, s3: taken })).rejects.toThrow(`port ${taken} for versitygw is in use`);
  } finally {
    other.close();
  }
  // Nothing of the refused ones is in the way.
  await using stack = await startLocalStack({
    dataDir: data.folder,
    cacheDir,
    log: silent,
    ports: { nats: taken, s3: 0 },
  });
  expect(new URL(stack.natsUrl).port).toBe(String(taken));
});

it('refuses a second stack with the same data directory', async () => {
  await using data = await temporaryFolder();
  await using stack = await startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free });
  const second = startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free });
  await expect(second).rejects.toThrow('another gymbus stack runs with the data directory');
  expect(await findStack(data.folder)).toMatchObject({ natsUrl: stack.natsUrl });
});

it('says when a server ends by itself, with the end of its log', async () => {
  await using data = await temporaryFolder();
  const { log, lines } = recordingLog();
  await using stack = await startLocalStack({ dataDir: data.folder, cacheDir, log, ports: free });
  const [nats] = await serversOf(data.folder);
  process.kill(nats?.pid ?? 0, 'SIGKILL');
  await eventually(() => stack.failed.aborted);
  expect(stack.failed.reason).toMatchObject({
    name: 'ServerFailed',
    message: expect.stringContaining('nats-server ended by itself (SIGKILL)'),
  });
  expect(stack.failed.reason.message).toContain('Server is ready');
  expect(lines().some(({ msg }) => msg === 'a server of the local stack ended')).toBe(true);
});

it('is gone with its owner, however that is killed, and starts again', async () => {
  await using data = await temporaryFolder();
  const root = path.resolve(import.meta.dirname, '../..');
  const owner = execa(
    path.join(root, 'node_modules/.bin/tsx'),
    [path.join(root, 'test/support/stack-owner.ts'), data.folder],
    {
      buffer: false,
      reject: false,
      stderr: 'inherit',
    },
  );
  const lines = owner.iterable()[Symbol.asyncIterator]();
  const pid = Number((await lines.next()).value);
  await lines.next();
  const servers = await serversOf(data.folder);
  expect(servers.map(({ name }) => name)).toEqual(['nats-server', 'versitygw']);
  expect(await findStack(data.folder)).not.toBeNull();
  process.kill(pid, 'SIGKILL');
  await owner;
  await eventually(async () => (await Promise.all(servers.map(stillRuns))).every((runs) => !runs));
  // Its file is still there and deceives nobody.
  expect((await stat(stackFile(data.folder))).isFile()).toBe(true);
  expect(await findStack(data.folder)).toBeNull();
  await using stack = await startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free });
  expect(await findStack(data.folder)).toMatchObject({ natsUrl: stack.natsUrl });
});

it('ends a server that outlived its stack, and no process that only has its number', async () => {
  await using data = await temporaryFolder();
  const { log, lines } = recordingLog();
  const before = await startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free });
  const [nats] = await serversOf(data.folder);
  const [binary = '', ...args] = nats?.argv ?? [];
  await before.stop();
  const left = spawn(binary, args, { stdio: 'ignore' });
  const bystander = spawn('sleep', ['60'], { stdio: 'ignore' });
  try {
    await Promise.all([once(left, 'spawn'), once(bystander, 'spawn')]);
    const stale = await identify(left.pid ?? 0);
    const innocent = await identify(bystander.pid ?? 0);
    if (!stale || !innocent) throw new Error('not spawned');
    const recorded = [
      { name: 'nats-server', ...stale },
      { name: 'versitygw', ...innocent, startTicks: innocent.startTicks - 1 },
    ];
    await writeFile(path.join(data.folder, 'stack/servers.json'), JSON.stringify(recorded));
    await using _stack = await startLocalStack({ dataDir: data.folder, cacheDir, log, ports: free });
    expect(left.signalCode ?? left.exitCode).not.toBeNull();
    expect(bystander.exitCode ?? bystander.signalCode).toBeNull();
    const ended = lines().filter(({ msg }) => msg === 'ending a server that a killed stack left behind');
    expect(ended).toMatchObject([{ name: 'nats-server', pid: left.pid }]);
  } finally {
    left.kill('SIGKILL');
    bystander.kill('SIGKILL');
  }
});

it.each([1, 25, 45])('stops what it has begun when it is told to %i ms after its start', async (afterMs) => {
  await using data = await temporaryFolder();
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Error('changed my mind')), afterMs);
  const start = (signal?: AbortSignal) =>
    startLocalStack({ dataDir: data.folder, cacheDir, log: silent, ports: free, signal });
  const outcome = await start(stop.signal).catch((error: Error) => error.message);
  clearTimeout(timer);
  // A fast machine may be done before.
  if (typeof outcome === 'string') expect(outcome).toBe('changed my mind');
  else await outcome.stop();
  await using stack = await start();
  expect(stack.failed.aborted).toBe(false);
});
