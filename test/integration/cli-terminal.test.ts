import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { commitOutcome } from '../../runner/bus/outcomes.ts';
import { jobsLeft } from '../support/bus-jobs.ts';
import { runGymbus } from '../support/command.ts';
import { never, recordStep } from '../support/recording.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { sampleAttempt, sampleJob, sampleResult } from '../support/samples.ts';
import { startServers, type TestServers } from '../support/servers.ts';
import { Terminal, type TerminalSettings } from '../support/terminal.ts';

const HIDE_CURSOR = '\x1b[?25l';
const SHOW_CURSOR = '\x1b[?25h';
let servers: TestServers;
beforeAll(async () => {
  servers = await startServers();
});
afterAll(() => servers?.[Symbol.asyncDispose]());

const terminal = (args: string[], settings: TerminalSettings = {}) =>
  new Terminal([process.execPath, gymbusCommand, ...args], { ...settings, env: servers.env });

function lines(batch: string, count: number): string {
  const jobs = Array.from({ length: count }, (_, n) =>
    sampleJob({ batch_id: batch, job_id: `j${n}`, policy: { name: 'random' } }),
  );
  return jobs.map((job) => JSON.stringify(job)).join('\n');
}

async function submit(batch: string, count: number): Promise<void> {
  const { exitCode, stderr } = await runGymbus(['submit', '-'], servers.env, { input: lines(batch, count) });
  expect(exitCode, stderr).toBe(0);
}

async function conclude(batch: string, job: string): Promise<void> {
  const trajectory = `s3://gymbus/batches/${batch}/jobs/${job}/attempts/1-abcdefgh/`;
  await commitOutcome(servers.bus, sampleResult({ batch, job, attempt: sampleAttempt() }, { trajectory }), 0);
  const subject = servers.bus.names.jobSubject({ image: 'debian-desktop', batch, job });
  await servers.bus.jsm.streams.purge(servers.bus.names.jobsStream, { filter: subject });
}

it('watch is a bar that fills, and ends by itself', async () => {
  await submit('bar', 4);
  await using watch = terminal(['watch', 'bar'], { columns: 120 });
  await watch.shows(/bar \[░+\] 0% {2}\d+s {2}0 done, 0 running, 4 waiting; no live runner serves debian-desktop/);
  await conclude('bar', 'j0');
  await watch.shows(/bar \[█{6}░{18}\] 25% {2}\d+s {2}1 done, 0 running, 3 waiting/);
  for (const job of ['j1', 'j2', 'j3']) await conclude('bar', job);
  await watch.shows(/bar \[█{24}\] 100% {2}\d+s {2}4 done, 0 running, 0 waiting/);
  expect(await watch.exit()).toBe(0);
  expect(watch.sent.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(watch.sent.lastIndexOf(HIDE_CURSOR));
});

it('Ctrl-C ends it with 130, and gives the cursor back', async () => {
  await submit('left', 1);
  await using watch = terminal(['watch', 'left']);
  await watch.shows('1 waiting');
  expect(watch.sent).toContain(HIDE_CURSOR);
  watch.interrupt();
  expect(await watch.exit(10_000)).toBe(130);
  expect(watch.text.trimEnd()).toMatch(/\ngymbus: interrupted$/);
  expect(watch.sent.lastIndexOf(SHOW_CURSOR)).toBeGreaterThan(watch.sent.lastIndexOf(HIDE_CURSOR));
});

it('results fit the terminal', async () => {
  for (const job of ['a', 'b']) await conclude('narrow', job);
  await using results = terminal(['results', 'narrow'], { columns: 80 });
  expect(await results.exit()).toBe(0);
  const shown = results.text.split('\n');
  expect(Math.max(...shown.map((line) => line.length))).toBeLessThanOrEqual(80);
  expect(results.text).toContain('trajectories are in s3://gymbus/batches/narrow/jobs/');
});

it('get shows how far it is', async () => {
  const address = { batch: 'films', job: 'a', attempt: '1-abcdefgh' };
  await using recording = await servers.place.begin(address);
  for (let step = 0; step <= 4; step++) await recordStep(recording, step);
  await recording.finish({ outcome: sampleResult(address), versions: {} }, never);
  await using get = terminal(['get', 'films/a', path.join(servers.place.folder, 'down')], { columns: 120 });
  expect(await get.exit()).toBe(0);
  expect(get.text).toMatch(/films\/a \[█{24}\] 100% {2}\d+s {2}7 of 7 files/);
  expect(get.text).toMatch(/attempt 1-abcdefgh: 7 files, \d+ bytes, 7 verified, 0 were there/);
});

it('submit shows how far it is', async () => {
  const file = path.join(servers.place.folder, 'lines.jsonl');
  await writeFile(file, lines('bulk', 3_000));
  await using submitting = terminal(['submit', file]);
  expect(await submitting.exit()).toBe(0);
  expect(submitting.text).toMatch(/publish \[█{24}\] 100% {2}\d+s {2}3000 of 3000 jobs/);
  expect(submitting.text).toContain('3000 queued');
  expect(await jobsLeft(servers.bus)).toBeGreaterThanOrEqual(3_000);
});

it('what goes into a pipe has no colours and no bars', async () => {
  const { stdout, stderr } = await runGymbus(['watch', 'bulk', '--once'], servers.env);
  expect(stdout).toMatch(/^bulk: 0 done, 0 running, 3000 waiting/);
  expect(stdout + stderr).not.toContain('\x1b');
});
