import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { commitOutcome, FenceBroken, readOutcome, UnreadableOutcome } from '../../runner/bus/outcomes.ts';
import { openTestBus, startNats } from '../support/nats.ts';
import { sampleResult } from '../support/samples.ts';

const job = { batch: 'night-42', job: 'rename-0007' };
const resultOf = (attempt: string) => sampleResult({ ...job, attempt });

it('lets one of fifty commits win, and tells each who won', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  expect(await readOutcome(bus, job.batch, job.job)).toBeNull();

  const results = Array.from({ length: 50 }, (_, index) => resultOf(`${index + 1}-abcdefgh`));
  const commits = await Promise.all(results.map((result) => commitOutcome(bus, result, 0)));

  const winners = commits.filter((commit) => commit.won);
  expect(winners).toHaveLength(1);
  const winner = results[commits.findIndex((commit) => commit.won)];
  const stored = await readOutcome(bus, job.batch, job.job);
  expect(stored).toEqual({ seq: winners[0]?.seq, result: winner });
  for (const commit of commits) {
    if (!commit.won) expect(commit).toEqual({ won: false, seq: stored?.seq, by: winner });
  }
});

it('knows that it won when only the answer was lost', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await using other = await openTestBus(server);
  const result = resultOf('1-abcdefgh');
  // The first publish reaches the server behind our back: to the commit it looks like its own, unanswered.
  const first = await commitOutcome(other, result, 0);
  expect(await commitOutcome(bus, result, 0)).toEqual({ won: true, seq: first.seq });
  expect((await bus.jsm.streams.info(bus.names.resultsStream)).state.messages).toBe(1);
});

it('goes on over a frozen server and a lost answer', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const result = resultOf('1-abcdefgh');
  server.freeze();
  const committing = commitOutcome(bus, result, 0);
  // Longer than one request waits: the publish lies in the frozen server's socket, and the next one follows it.
  await sleep(6_000);
  server.thaw();
  const commit = await committing;
  expect(commit.won).toBe(true);
  expect(await readOutcome(bus, job.batch, job.job)).toEqual({ seq: commit.seq, result });
  expect((await bus.jsm.streams.info(bus.names.resultsStream)).state.last_seq).toBe(1);
});

it('commits when the server is killed and started again meanwhile', async () => {
  await using server = await startNats({ syncAlways: true });
  await using bus = await openTestBus(server);
  await server.kill();
  const committing = commitOutcome(bus, resultOf('1-abcdefgh'), 0);
  await sleep(500);
  await server.start();
  expect(await committing).toEqual({ won: true, seq: 1 });
});

it('gives up a commit with its signal, for the runner that is told to stop', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  await server.kill();
  const stop = new AbortController();
  const committing = commitOutcome(bus, resultOf('1-abcdefgh'), 0, { signal: stop.signal });
  stop.abort(new Error('drain is over'));
  await expect(committing).rejects.toThrow('drain is over');
});

it('lets a retry supersede the outcome it names, once, and no stale one', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const first = await commitOutcome(bus, resultOf('1-firstfirst'), 0);
  const retry = await commitOutcome(bus, resultOf('1-retryretry'), first.seq);
  expect(retry).toEqual({ won: true, seq: first.seq + 1 });
  expect(await commitOutcome(bus, resultOf('1-latelatelate'), first.seq)).toMatchObject({ won: false, seq: retry.seq });
  expect(await commitOutcome(bus, resultOf('1-frozenfrozen'), 0)).toMatchObject({ won: false, seq: retry.seq });
  await expect(commitOutcome(bus, { ...resultOf('1-abcdefgh'), job_id: 'other' }, 7)).rejects.toThrow(FenceBroken);
});

it('tells two deaths without an attempt apart by their bytes', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const dead = (runner: string) => ({
    ...resultOf('1-abcdefgh'),
    attempt: null,
    attempts: 0,
    status: 'dead' as const,
    runner,
  });
  expect(await commitOutcome(bus, dead('host-a'), 0)).toMatchObject({ won: true });
  expect(await commitOutcome(bus, dead('host-a'), 0)).toMatchObject({ won: true });
  expect(await commitOutcome(bus, dead('host-b'), 0)).toMatchObject({ won: false, by: { runner: 'host-a' } });
});

it('says so when something else stands on the results subject', async () => {
  await using server = await startNats();
  await using bus = await openTestBus(server);
  const { seq } = await bus.js.publish(bus.names.resultSubject(job.batch, job.job), 'not a result');
  await expect(readOutcome(bus, job.batch, job.job)).rejects.toThrow(UnreadableOutcome);
  await expect(commitOutcome(bus, resultOf('1-abcdefgh'), 0)).rejects.toMatchObject({ seq });
});
