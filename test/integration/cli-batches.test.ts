import { readdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { updateBatch } from '../../runner/bus/batch-flags.ts';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { Heartbeat, readRunners } from '../../runner/bus/heartbeat.ts';
import { pull } from '../../runner/bus/pull.ts';
import type { Result } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { type CliPlace, randomJob as job, openCliPlace } from '../support/cli-jobs.ts';
import { runGymbus } from '../support/command.ts';
import { never, recordStep } from '../support/recording.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { sampleResult, sampleStatus } from '../support/samples.ts';

let cli: CliPlace;
let servers: CliPlace['servers'];
let folder: string;
let gymbus: CliPlace['gymbus'];
let linesFile: CliPlace['linesFile'];
let conclude: CliPlace['conclude'];
beforeAll(async () => {
  cli = await openCliPlace();
  ({ servers, folder, gymbus, linesFile, conclude } = cli);
});
afterAll(() => cli?.[Symbol.asyncDispose]());

describe('watch', () => {
  let status = sampleStatus();
  let heartbeat: Heartbeat;
  beforeAll(() => {
    heartbeat = new Heartbeat(servers.bus, 'host-a', () => status);
  });
  afterAll(() => heartbeat?.[Symbol.asyncDispose]());

  it('writes a line at each change until nothing of the batch is queued', async () => {
    await gymbus('submit', await linesFile('shift.jsonl', [job('shift', 'a'), job('shift', 'b')]));
    const watching = execa(process.execPath, [gymbusCommand, 'watch', 'shift'], { env: servers.env, timeout: 60_000 });
    const lines: string[] = [];
    for await (const line of watching.iterable()) {
      lines.push(line);
      if (line.includes('0 done, 0 running, 2 waiting')) {
        const consumer = await ensureConsumer(servers.bus, { image: 'debian-desktop', batch: 'shift' });
        await pull(servers.bus, consumer.name, 1);
      } else if (line.includes('0 done, 1 running, 1 waiting')) {
        await conclude('shift', 'a');
        await conclude('shift', 'b');
      }
    }
    expect(lines[0]).toBe('shift: 0 done, 0 running, 2 waiting');
    expect(lines[1]).toBe('shift: 0 done, 1 running, 1 waiting');
    expect(lines.at(-1)).toMatch(/^shift: 2 done, 0 running, 0 waiting/);
    expect((await watching).exitCode).toBe(0);
  });

  it('may be cut off by who reads it', async () => {
    await gymbus('submit', await linesFile('cut.jsonl', [job('cut', 'a'), job('cut', 'b')]));
    const reader = '{ head -n 1; exec <&-; echo gone; }';
    const script = `"${process.execPath}" "${gymbusCommand}" watch cut | ${reader}; echo "exit \${PIPESTATUS[0]}"`;
    const watching = execa('bash', ['-c', script], { env: servers.env, timeout: 60_000 });
    const lines: string[] = [];
    for await (const line of watching.iterable()) {
      lines.push(line);
      // Its second line finds nobody who reads.
      if (line === 'gone') await conclude('cut', 'a');
    }
    expect(lines).toEqual(['cut: 0 done, 0 running, 2 waiting', 'gone', 'exit 0']);
    expect((await watching).stderr).toBe('');
    await conclude('cut', 'b');
  });

  it('says why jobs wait', async () => {
    await gymbus('submit', await linesFile('lonely.jsonl', [job('lonely', 'a', { image: 'windows' })]));
    const unserved = await gymbus('watch', 'lonely', '--once');
    expect(unserved.stdout).toBe('lonely: 0 done, 0 running, 1 waiting; no live runner serves windows');
    const reason = 'disk: 1.2 GiB free, floor is 2.0 GiB';
    status = sampleStatus({ state: 'holding', reason, images: [{ name: 'windows', digest: 'd' }] });
    heartbeat.beat();
    await eventually(async () => (await readRunners(servers.bus)).some(({ state }) => state === 'holding'));
    const held = await gymbus('watch', 'lonely', '--once');
    expect(held.stdout).toContain('1 waiting; runner host-a is holding: disk: 1.2 GiB free');
    await servers.bus.jsm.streams.purge(servers.bus.names.jobsStream, { filter: 'gymbus.jobs.windows.>' });
  });

  it('exits with 1 when nothing is known of a batch', async () => {
    for (const command of [
      ['watch', 'nobody', '--once'],
      ['watch', 'nobody'],
      ['results', 'nobody'],
    ]) {
      const { exitCode, stdout, stderr } = await gymbus(...command);
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
      expect(stderr).toMatch(
        /^gymbus: no batch "nobody" on this bus \(127\.0\.0\.1:\d+\): none of its jobs is queued, and none has an outcome; check its name, NATS_URL and GYMBUS_PREFIX$/,
      );
    }
  });

  it('exits with 1 when a batch is known by its record alone', async () => {
    await updateBatch(servers.bus, 'announced', { size: 3 });
    for (const command of ['watch', 'results']) {
      const { exitCode, stdout, stderr } = await gymbus(command, 'announced');
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
      expect(stderr).toBe(
        'gymbus: batch "announced" has a record but no jobs: none of its jobs is queued, and none has an outcome',
      );
    }
  });
});

describe('results', () => {
  beforeAll(async () => {
    await conclude('scored', 'job-10', { score: 0, reward: 0 });
    await conclude('scored', 'job-2', { trajectory: 's3://gymbus/batches/scored/jobs/job-2/attempts/1-abcdefgh/' });
    const failure = { class: 'guest', message: 'it fell silent' } as const;
    await conclude('scored', 'job-3', { status: 'failed', valid: false, score: null, reward: null, failure });
  });

  it('are a table for people, in the order of their names', async () => {
    const { exitCode, stdout } = await gymbus('results', 'scored');
    expect(exitCode).toBe(0);
    const lines = stdout.split('\n');
    expect(lines[0]).toMatch(/^job +status +score +steps +seconds +trajectory$/);
    expect(lines[2]).toMatch(
      /^job-2 +completed +1 .* s3:\/\/gymbus\/batches\/scored\/jobs\/job-2\/attempts\/1-abcdefgh\/$/,
    );
    expect(lines[3]).toMatch(/^job-3 +failed \(guest\) +- /);
    expect(lines[4]).toMatch(/^job-10 +completed +0 /);
    expect(lines.at(-1)).toBe('3 jobs: 2 valid, 1 not valid; mean score 0.500 over 2 scored');
  });

  it('are an array for programs', async () => {
    const { stdout, stderr } = await gymbus('results', 'scored', '--json');
    const results = JSON.parse(stdout) as Result[];
    expect(results.map(({ job_id, valid, score }) => [job_id, valid, score])).toEqual([
      ['job-2', true, 1],
      ['job-3', false, null],
      ['job-10', true, 0],
    ]);
    expect(stderr).toBe('');
  });

  it('of a batch without any exit with 1, and are an empty array', async () => {
    await gymbus('submit', await linesFile('early.jsonl', [job('early', 'a')]));
    const { exitCode, stdout, stderr } = await gymbus('results', 'early', '--json');
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '[]' });
    expect(stderr).toContain('batch early has no outcome yet; gymbus watch early shows what waits');
    await conclude('early', 'a');
  });
});

describe('get', () => {
  const address = { batch: 'films', job: 'a', attempt: '2-abcdefgh' };
  const to = (): string => path.join(folder, 'films', 'a');
  beforeAll(async () => {
    const { place } = servers;
    await using first = await place.begin({ ...address, attempt: '1-abcdefgh' });
    await recordStep(first, 0);
    await first.leave(10_000);
    await using recording = await place.begin(address);
    for (let step = 0; step <= 2; step++) await recordStep(recording, step);
    await recording.finish({ outcome: sampleResult(address), versions: {} }, never);
  });

  it('downloads the last finished attempt, checked, and says where to', async () => {
    const { exitCode, stdout, stderr } = await gymbus('get', 'films/a');
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: to() });
    expect(stderr).toMatch(/attempt 2-abcdefgh: (\d+) files, \d+ bytes, \1 verified, 0 were there/);
    const names = await readdir(to());
    expect(names).toEqual(
      expect.arrayContaining(['manifest.json', 'trajectory.jsonl', 'step-0000.png', 'step-0002.png']),
    );
  });

  it('goes on where it was', async () => {
    await rm(path.join(to(), 'step-0001.png'));
    await writeFile(path.join(to(), 'step-0002.png'), 'spoilt');
    const { exitCode, stderr } = await gymbus('get', 'films/a');
    expect(exitCode).toBe(0);
    const [, files, kept] = /: (\d+) files, .* (\d+) were there/.exec(stderr) ?? [];
    expect(Number(kept)).toBe(Number(files) - 2);
  });

  it('names the object whose bytes are not what was recorded', async () => {
    const { store } = servers.place;
    const key = 'batches/films/jobs/a/attempts/2-abcdefgh/step-0001.png';
    await store.put(key, Buffer.from('another picture'), 'image/png');
    const { exitCode, stderr } = await gymbus('get', 'films/a', path.join(folder, 'elsewhere'));
    expect(exitCode).toBe(1);
    expect(stderr).toContain(`gymbus: s3://gymbus/${key} has 15 bytes of sha256`);
  });

  it('says what there is instead', async () => {
    const none = await gymbus('get', 'films/b');
    expect(none.exitCode).toBe(1);
    expect(none.stderr).toContain(
      'there is no trajectory at s3://gymbus/batches/films/jobs/b/; gymbus watch films shows',
    );
    const other = await gymbus('get', 'films/a', '--attempt', '7-abcdefgh');
    expect(other.exitCode).toBe(1);
    expect(other.stderr).toMatch(/there is no attempt 7-abcdefgh at .*; there are .*2-abcdefgh$/);
  });

  it.each([
    ['/proc/no/such', /^gymbus: cannot make the folder \/proc\/no \(ENOENT\): name another one$/m],
    [import.meta.filename, /^gymbus: .*cli-batches\.test\.[jt]s is a file: name a folder to download to$/m],
    [`${import.meta.filename}/below`, /cli-batches\.test\.[jt]s is a file: name a folder/],
  ])('says that there can be no folder %s', async (place, said) => {
    const { exitCode, stderr } = await gymbus('get', 'films/a', place);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(said);
    expect(stderr).not.toContain('GYMBUS_DATA');
  });

  it('is told of wrong keys', async () => {
    const wrong = { ...servers.env, AWS_SECRET_ACCESS_KEY: 'wrong' };
    const { exitCode, stderr } = await runGymbus(['get', 'films/a'], wrong);
    expect(exitCode).toBe(1);
    expect(stderr).toContain('check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY');
  });
});
