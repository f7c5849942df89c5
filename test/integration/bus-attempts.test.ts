import { expect, it } from 'vitest';
import {
  type AttemptRequest,
  attemptSuffix,
  beginAttempt,
  endAttempt,
  readAttempts,
} from '../../runner/bus/attempts.ts';
import type { Bus } from '../../runner/bus/index.ts';
import type { AttemptHistory } from '../../schemas/index.ts';
import { openTestBus, startNats } from '../support/nats.ts';

const job = { batch: 'night-42', job: 'rename-0007' };
const most = (attempts: number) => ({ usedUp: (history: AttemptHistory) => history.attempts.length >= attempts });
const begin = (bus: Bus, change: Partial<AttemptRequest> = {}) => {
  const request = { ...job, sha256: 'a'.repeat(64), fence: 0, runner: 'host-a', suffix: attemptSuffix() };
  return beginAttempt(bus, { ...request, ...most(2), ...change });
};
const suffixOf = (attempt: string) => attempt.slice(attempt.indexOf('-') + 1);

it('writes attempts down and refuses when they are used up', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const first = await begin(bus);
  if (first.kind !== 'begun') throw new Error(first.kind);
  expect(first.attempt.attempt).toMatch(/^1-[a-z0-9]{10}$/);
  expect(await readAttempts(bus, job.batch, job.job)).toEqual(first.history);

  const ended = await endAttempt(bus, job.batch, job.job, suffixOf(first.attempt.attempt), {
    class: 'guest',
    message: 'silent',
    replicaLost: true,
  });
  expect(ended?.attempts).toMatchObject([{ class: 'guest', message: 'silent', replica_lost: true }]);
  expect(ended?.attempts[0]?.ended_at).not.toBeNull();
  // The first end stands.
  await endAttempt(bus, job.batch, job.job, suffixOf(first.attempt.attempt), { class: 'host' });
  expect(await readAttempts(bus, job.batch, job.job)).toEqual(ended);

  expect(await begin(bus)).toMatchObject({
    kind: 'begun',
    attempt: { attempt: expect.stringMatching(/^2-/) },
  });
  const third = await begin(bus);
  expect(third.kind).toBe('used_up');
  expect(third.history.attempts.map((attempt) => attempt.class)).toEqual(['guest', null]);
});

it('starts anew for a retry and for another body, and leaves the old attempt alone', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const first = await begin(bus, { ...most(1) });
  expect((await begin(bus, { ...most(1) })).kind).toBe('used_up');
  const retry = await begin(bus, { ...most(1), fence: 9 });
  expect(retry).toMatchObject({ kind: 'begun', history: { fence: 9, attempts: [{ ended_at: null }] } });
  const other = await begin(bus, { ...most(1), fence: 9, sha256: 'b'.repeat(64) });
  expect(other.kind).toBe('begun');
  const old = first.kind === 'begun' ? first.attempt.attempt : '';
  expect(await endAttempt(bus, job.batch, job.job, suffixOf(old), { class: null })).toBeNull();
});

it('lets two runners begin at once and forgets neither', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const begun = await Promise.all(
    Array.from({ length: 12 }, (_, n) => begin(bus, { ...most(8), runner: `host-${n}` })),
  );
  expect(begun.filter(({ kind }) => kind === 'begun')).toHaveLength(8);
  const history = await readAttempts(bus, job.batch, job.job);
  expect(history?.attempts.map(({ attempt }) => attempt.split('-')[0])).toEqual([
    '1',
    '2',
    '3',
    '4',
    '5',
    '6',
    '7',
    '8',
  ]);
  expect(new Set(history?.attempts.map(({ runner }) => runner)).size).toBe(8);
});

it('counts anew after the key was deleted or overwritten by hand', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await begin(bus);
  const deleted = await server.cli('kv', 'del', bus.names.attemptsBucket, 'night-42.rename-0007', '--force');
  expect(deleted.exitCode, deleted.all).toBe(0);
  expect(await readAttempts(bus, job.batch, job.job)).toBeNull();
  expect(await begin(bus)).toMatchObject({
    kind: 'begun',
    history: { attempts: [{ runner: 'host-a' }] },
  });
  const put = await server.cli('kv', 'put', bus.names.attemptsBucket, 'night-42.rename-0007', 'rubbish');
  expect(put.exitCode, put.all).toBe(0);
  expect((await begin(bus)).history.attempts).toHaveLength(1);
});
