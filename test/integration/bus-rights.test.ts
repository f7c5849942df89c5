import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ensureStreams } from '../../runner/bus/ensure.ts';
import { openBus } from '../../runner/bus/index.ts';
import { runGymbus } from '../support/command.ts';
import { silent } from '../support/nats.ts';
import { type OperatedNats, startOperatedNats } from '../support/nats-operator.ts';
import { permissionsOf, type Role } from '../support/nats-roles.ts';
import { sampleJob } from '../support/samples.ts';

/** Whoever lacks a right is told so, and is left without an answer by no command. */
let nats: OperatedNats;
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-rights-'));
  nats = await startOperatedNats();
  const settings = { servers: [nats.server.url], name: 'admin', log: silent, patienceMs: 5_000 };
  await using bus = await openBus({ ...settings, credentialsFile: await nats.credentials('admin') });
  await ensureStreams(bus);
});
afterAll(async () => {
  await nats?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const jobLine = (batch: string) => JSON.stringify(sampleJob({ batch_id: batch, policy: { name: 'random' } }));

/** The environment of a user with the rights of a role, but for some. */
async function without(role: Role, lacking: RegExp): Promise<Record<string, string>> {
  const { publish, subscribe } = permissionsOf(role);
  const rights = { publish: { allow: publish.allow.filter((right) => !lacking.test(right)) }, subscribe };
  const name = `blind-${role}`;
  return { NATS_URL: nats.server.url, NATS_CREDS: await nats.credentials(name, rights), GYMBUS_DATA: folder };
}

it('a publisher that may not see runners publishes all the same, and is told what it lacks', async () => {
  const env = await without('publisher', /RUNNERS/);
  const published = await runGymbus(['submit', '-'], env, { input: jobLine('blind') });
  expect(published).toMatchObject({ exitCode: 0, stdout: '1 queued' });
  expect(published.stderr).toMatch(
    /^whether a runner serves these jobs cannot be seen \(.*\); who has the rights of a publisher sees it: infra\/nats\/permissions$/m,
  );
});

it('a reader that may not see runners is not left watching nothing', async () => {
  const env = await without('reader', /DIRECT/);
  const { exitCode, stderr } = await runGymbus(['watch', 'blind'], env);
  expect(exitCode, stderr).toBe(1);
  expect(stderr).toMatch(/^gymbus: NATS /);
});

it.each([
  [
    'streams that are missing',
    permissionsOf('publisher'),
    /no publish to \$JS\.API\.STREAM\.CREATE\.GYMBUS_JOBS; give/,
  ],
  [
    'jobs only',
    { publish: { allow: ['gymbus.jobs.>'] }, subscribe: { allow: ['_INBOX.>'] } },
    /no publish to \$JS\.API\.INFO; give/,
  ],
  [
    'no answers',
    { publish: { allow: ['>'] }, subscribe: { allow: ['gymbus.>'] } },
    /no subscription to _INBOX\.\S+; give/,
  ],
])('a user with rights for %s is told what it lacks', async (_, permissions, message) => {
  await using fresh = await startOperatedNats();
  const NATS_CREDS = await fresh.credentials('some', permissions);
  const asking = { NATS_URL: fresh.server.url, NATS_CREDS, GYMBUS_DATA: folder };
  const { exitCode, stderr } = await runGymbus(['submit', '-'], asking, { input: jobLine('b') });
  expect(exitCode).toBe(1);
  expect(stderr).toMatch(message);
  expect(stderr).not.toContain('    at ');
});
