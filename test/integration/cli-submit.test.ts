import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Heartbeat, readRunners } from '../../runner/bus/heartbeat.ts';
import { eventually, jobsLeft } from '../support/bus-jobs.ts';
import { type CliPlace, randomJob as job, openCliPlace } from '../support/cli-jobs.ts';
import { runGymbus } from '../support/command.ts';
import { blocksOf, readmeFile } from '../support/readme.ts';
import { available, osworldTasks } from '../support/requirement.ts';
import { gymbusCommand } from '../support/runner-process.ts';
import { sampleStatus } from '../support/samples.ts';

let cli: CliPlace;
let servers: CliPlace['servers'];
let gymbus: CliPlace['gymbus'];
let linesFile: CliPlace['linesFile'];
let conclude: CliPlace['conclude'];
beforeAll(async () => {
  cli = await openCliPlace();
  ({ servers, gymbus, linesFile, conclude } = cli);
});
afterAll(() => cli?.[Symbol.asyncDispose]());

describe('submit', () => {
  it('publishes a file, and again, and what was done before', async () => {
    const file = await linesFile('night.jsonl', [job('night', 'a'), job('night', 'b')]);
    const first = await gymbus('submit', file);
    expect(first).toMatchObject({ exitCode: 0, stdout: '2 queued' });
    expect(first.stderr).toContain('to follow it: gymbus watch night');
    expect(await gymbus('submit', file)).toMatchObject({ exitCode: 0, stdout: '0 queued, 2 were in the queue' });
    await conclude('night', 'a');
    const third = await gymbus('submit', file);
    expect(third).toMatchObject({ exitCode: 0, stdout: '0 queued, 1 were in the queue, 1 done before' });
    await conclude('night', 'b');
  });

  it('warns, once all is published, of an image that no live runner serves', async () => {
    const jobs = [job('unserved', 'a'), job('unserved', 'b', { image: 'windows' }), job('unserved', 'c')];
    const file = await linesFile('unserved.jsonl', jobs);
    const warning = (image: string, more: string) =>
      `warning: no live runner serves ${image} (${more}): the jobs for ${image} wait until one takes them`;
    const alone = await gymbus('submit', file);
    expect(alone).toMatchObject({ exitCode: 0, stdout: '3 queued' });
    expect(alone.stderr.split('\n').filter((line) => line.includes('warning'))).toEqual([
      warning('debian-desktop', 'no runner is live'),
      warning('windows', 'no runner is live'),
    ]);
    await using _ = new Heartbeat(servers.bus, 'host-b', () => sampleStatus({ runner: 'host-b' }));
    await eventually(async () => (await readRunners(servers.bus)).length === 1);
    const again = await gymbus('submit', file);
    expect(again).toMatchObject({ exitCode: 0, stdout: '0 queued, 3 were in the queue' });
    expect(again.stderr).toContain(warning('windows', 'live runners serve debian-desktop'));
    expect(again.stderr).not.toContain('no live runner serves debian-desktop');
    await conclude('unserved', 'a');
    const done = await runGymbus(['submit', '-'], servers.env, { input: JSON.stringify(jobs[0]) });
    expect(done).toMatchObject({ exitCode: 0, stdout: '0 queued, 1 done before' });
    expect(done.stderr).not.toContain('warning');
    await conclude('unserved', 'c');
    await servers.bus.jsm.streams.purge(servers.bus.names.jobsStream, { filter: 'gymbus.jobs.windows.>' });
  });

  it('reads standard input', async () => {
    const input = JSON.stringify(job('piped', 'a'));
    expect(await runGymbus(['submit', '-'], servers.env, { input })).toMatchObject({ exitCode: 0, stdout: '1 queued' });
    const wrong = await runGymbus(['submit', '-'], servers.env, { input: `${input}\n{}` });
    expect(wrong).toMatchObject({ exitCode: 2, stdout: '' });
    expect(wrong.stderr).toContain('-:2: schema: ');
    await conclude('piped', 'a');
  });

  it('publishes nothing of a file with one wrong line, and names it', async () => {
    const before = await jobsLeft(servers.bus);
    const file = await linesFile('wrong.jsonl', [job('wrong', 'a'), job('wrong', 'b', { policy: { name: 'gpt' } })]);
    const { exitCode, stdout, stderr } = await gymbus('submit', 'wrong.jsonl');
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toMatch(
      /^gymbus: nothing was published:\n +wrong\.jsonl:2: policy\.name: there is no policy "gpt"; known are/,
    );
    expect(await jobsLeft(servers.bus)).toBe(before);
    expect(file).toMatch(/wrong\.jsonl$/);
  });

  it('says what the bus refuses, and publishes the rest', async () => {
    const files = [{ path: 'large', content_base64: 'AAAA'.repeat(2 ** 19) }];
    const large = job('sizes', 'large', { setup: [{ type: 'upload_file', parameters: { files } }] });
    const { exitCode, stdout, stderr } = await gymbus(
      'submit',
      await linesFile('sizes.jsonl', [large, job('sizes', 'small')]),
    );
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '1 queued, 1 refused' });
    expect(stderr).toMatch(
      /not published:\n +sizes\/large: the job is 2,097,\d+ bytes .* limit is 524,288 .*inputs\/<batch>\//,
    );
    await conclude('sizes', 'small');
  });

  it.skipIf(!available('osworld'))('makes jobs of OSWorld tasks as they are', async () => {
    const tasks = (await readdir(osworldTasks, { recursive: true })).filter((name) => name.endsWith('.json')).sort();
    const task = path.join(osworldTasks, tasks.find((name) => name.includes('a462a795')) ?? '');
    const params = '{"actions": [{"type": "fail"}]}';
    const call = ['submit', '--osworld', task, '--batch', 'osworld', '--policy', 'scripted', '--params', params];
    expect(await gymbus(...call)).toMatchObject({ exitCode: 0, stdout: '1 queued' });
    const wrong = await gymbus('submit', '--osworld', task, '--batch', 'osworld', '--policy', 'nobody');
    expect(wrong.exitCode).toBe(2);
    expect(wrong.stderr).toContain('there is no policy "nobody"');
    const id = (JSON.parse(await readFile(task, 'utf8')) as { id: string }).id;
    await conclude('osworld', id);
  });

  it.skipIf(!available('osworld'))('publishes the OSWorld tasks that the README does', async () => {
    const shown = blocksOf(await readFile(readmeFile, 'utf8')).find(({ mark }) => mark === 'run: osworld');
    const script = (shown?.text ?? '').replace('npx gymbus', `"${process.execPath}" "${gymbusCommand}"`);
    const options = { cwd: path.dirname(osworldTasks), env: servers.env, reject: false, stdin: 'ignore' } as const;
    const { stdout, stderr, exitCode } = await execa('sh', ['-ec', script], options);
    expect({ exitCode, stdout }, stderr).toEqual({ exitCode: 0, stdout: '2 queued' });
    for (const id of ['a462a795-fdc7-4b23-b689-e8b6df786b78', 'fe41f596-a71b-4c2f-9b2f-9dcd40b568c3'])
      await conclude('os-1', id);
  });
});
