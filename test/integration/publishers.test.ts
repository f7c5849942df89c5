import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkJob } from '../../functions/check-job.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import type { Bus } from '../../runner/bus/index.ts';
import { pull } from '../../runner/bus/pull.ts';
import { messageId, parseJob } from '../../schemas/index.ts';
import { jobsLeft } from '../support/bus-jobs.ts';
import { type NatsServer, openTestBus, startNats } from '../support/nats.ts';
import { natsCliEnv } from '../support/nats-cli.ts';
import { ensurePython } from '../support/python.ts';

// The README shows these very files. They know nothing of gymbus: a subject, a header, a body.
const folder = path.join(import.meta.dirname, 'publishers');
const INSTALL_MS = 5 * 60_000;
let server: NatsServer;
let bus: Bus;
let env: Record<string, string>;
let python: string;
let built: string;

beforeAll(async () => {
  server = await startNats();
  bus = await openTestBus(server);
  env = await natsCliEnv(server.url, server.folder);
  python = await ensurePython();
  built = await mkdtemp(path.join(os.tmpdir(), 'gymbus-publish-'));
  await execa('go', ['build', '-o', path.join(built, 'publish'), '.'], { cwd: folder, timeout: INSTALL_MS });
}, 2 * INSTALL_MS);
afterAll(async () => {
  await bus?.[Symbol.asyncDispose]();
  await server?.[Symbol.asyncDispose]();
  await rm(built ?? '', { recursive: true, force: true });
});

const run = (file: string, ...args: string[]) => execa(file, args, { env, reject: false, all: true, timeout: 60_000 });
const publishers = {
  shell: (batch: string, job: string) => run(path.join(folder, 'publish.sh'), batch, job),
  Go: (batch: string, job: string) => run(path.join(built, 'publish'), batch, job),
  Python: (batch: string) => run(python, path.join(folder, 'publish.py'), batch, '1'),
};

describe.each(Object.entries(publishers))('a publisher in %s', (language, publish) => {
  const batch = `by-${language}`;
  const job = language === 'Python' ? 'explore-00000' : 'battery';

  it('publishes a job that a runner takes', async () => {
    const { exitCode, all } = await publish(batch, job);
    expect(exitCode, all).toBe(0);
    const consumer = await ensureConsumer(bus, { image: 'debian-desktop', batch });
    const { messages } = await pull(bus, consumer.name, 2);
    expect(messages.map(({ address }) => address)).toEqual([{ image: 'debian-desktop', batch, job }]);
    const parsed = parseJob(messages[0]?.data ?? new Uint8Array());
    if (parsed.kind !== 'job') throw new Error(JSON.stringify(parsed));
    expect(parsed.job).toMatchObject({ batch_id: batch, job_id: job, image: 'debian-desktop' });
    expect(checkJob(parsed.job)).toEqual([]);
    expect(messages[0]?.headers?.get('Nats-Msg-Id')).toBe(messageId(batch, job));
  });

  it('queues nothing twice', async () => {
    const before = await jobsLeft(bus);
    const { exitCode, all } = await publish(batch, job);
    expect(exitCode, all).toBe(0);
    expect(await jobsLeft(bus)).toBe(before);
  });
});

it('publishes ten thousand jobs from Python within a minute', async () => {
  const startedAtMs = performance.now();
  const { exitCode, all } = await run(python, path.join(folder, 'publish.py'), 'ten-thousand', '10000');
  expect(exitCode, all).toBe(0);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  console.log(`${Math.round(10_000 / seconds)} jobs/s published from Python`);
  const { state } = await bus.jsm.streams.info(bus.names.jobsStream, {
    subjects_filter: 'gymbus.jobs.debian-desktop.ten-thousand.>',
  });
  expect(Object.keys(state.subjects ?? {})).toHaveLength(10_000);
});

it('is told by nats pub -J what the bus refuses', async () => {
  const tooLarge = await execa('nats', ['pub', '-J', 'gymbus.jobs.debian-desktop.b.large', '--force-stdin'], {
    ...{ env, reject: false, all: true, timeout: 60_000 },
    input: ' '.repeat(600_000),
  });
  expect(tooLarge.exitCode, tooLarge.all).not.toBe(0);
  expect(tooLarge.all).toContain('message size exceeds maximum allowed');
  // A second one of another body, under another id: the job is in the queue once.
  const again = await run(
    'nats',
    'pub',
    '-J',
    '-H',
    'Nats-Msg-Id:other',
    'gymbus.jobs.debian-desktop.ten-thousand.explore-00001',
    '{}',
  );
  expect(again.exitCode, again.all).not.toBe(0);
  expect(again.all).toContain('maximum messages per subject exceeded');
});
