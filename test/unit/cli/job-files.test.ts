import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CliError, EXIT } from '../../../runner/cli/error.ts';
import { readJobLines, readOsworldTasks } from '../../../runner/cli/job-files.ts';
import { sampleJob } from '../../support/samples.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-jobs-'));
});
afterAll(() => rm(folder, { recursive: true }));

const job = (over: object = {}) => ({
  ...sampleJob({ policy: { name: 'scripted', params: { actions: [] } } }),
  ...over,
});

async function linesFile(...lines: (object | string)[]): Promise<string> {
  const file = path.join(folder, `${Math.random()}.jsonl`);
  await writeFile(file, lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'));
  return file;
}

/** What it is refused with. */
async function refusal(reading: Promise<unknown>): Promise<string> {
  const error = await reading.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(CliError);
  expect((error as CliError).exitCode).toBe(EXIT.usage);
  return (error as CliError).message;
}

describe('job lines', () => {
  it('go out byte by byte as they are', async () => {
    const line = `  ${JSON.stringify(job())}  `;
    const [read] = await readJobLines(await linesFile('', line, ''));
    expect(read?.address).toEqual({ image: 'debian-desktop', batch: 'night-42', job: 'rename-0007' });
    expect(Buffer.from(read?.data ?? []).toString()).toBe(line);
  });

  it('may be one over many lines, as people write it', async () => {
    const text = JSON.stringify(job(), null, 2);
    const [read, ...more] = await readJobLines(await linesFile('', text, ''));
    expect(more).toEqual([]);
    expect(Buffer.from(read?.data ?? []).toString()).toBe(text);
    const wrong = await linesFile(JSON.stringify(job({ colour: 'red' }), null, 2));
    expect(await refusal(readJobLines(wrong))).toContain(`  ${wrong}: unknown field "colour"`);
  });

  it.each([[undefined], [2]])('may be no list, over however many lines: indented by %j', async (indent) => {
    const list = await linesFile(JSON.stringify([job(), job()], null, indent));
    expect(await refusal(readJobLines(list))).toBe(
      `${list} is one list of 2; give each job a line: jq -c '.[]' ${list} | gymbus submit -`,
    );
  });

  it('may begin with a mark of the byte order, which does not go out', async () => {
    const lines = [JSON.stringify(job()), JSON.stringify(job({ job_id: 'b' }))];
    for (const text of [lines.join('\n'), JSON.stringify(job(), null, 2)]) {
      const [read] = await readJobLines(await linesFile(`\ufeff${text}`));
      expect(Buffer.from(read?.data ?? []).toString()[0]).toBe('{');
    }
  });

  it('are told how to be made of several that are over many lines', async () => {
    const file = await linesFile(JSON.stringify(job(), null, 2), JSON.stringify(job({ job_id: 'b' }), null, 2));
    const message = await refusal(readJobLines(file));
    expect(message).toContain(`\`jq -c . ${file} | gymbus submit -\` makes lines of several`);
    expect(message.split('\n')).toHaveLength(2);
  });

  it.each(['latin1', 'utf16le'] as const)('are UTF-8, and %s is not guessed at', async (encoding) => {
    const file = await linesFile(job());
    await writeFile(
      file,
      Buffer.from(
        `\ufeff${JSON.stringify(job({ instruction: 'öffnen' }))}`.slice(encoding === 'latin1' ? 1 : 0),
        encoding,
      ),
    );
    expect(await refusal(readJobLines(file))).toMatch(/ is no UTF-8: .* iconv -f LATIN1 -t UTF-8$/);
  });

  it('are refused without a character that a terminal would obey', async () => {
    const evil = '\u001b[31m\u009b2J\u0007';
    const lines = [
      `{"schema": ${evil}`,
      JSON.stringify(job({ [evil]: 1 })),
      JSON.stringify(job({ job_id: evil })),
      JSON.stringify(job({ policy: { name: evil } })),
      JSON.stringify(job({ metadata: { [evil]: 'x' } })).replace('"x"', '1e999'),
    ];
    const message = await refusal(readJobLines(await linesFile(...lines)));
    expect(message.split('\n')).toHaveLength(1 + lines.length);
    expect(message.replaceAll('\n', '')).not.toMatch(/[\p{Cc}]/u);
  });

  it('are refused together, each wrong one by file, line, field and value', async () => {
    const file = await linesFile(
      job(),
      '{"schema": ',
      job({ job_id: 'a.b' }),
      job({ job_id: 'b', colour: 'red' }),
      job({ job_id: 'c', policy: { name: 'scriptd' } }),
      job({ job_id: 'd', schema: 'gymbus.job.v2' }),
    );
    const lines = (await refusal(readJobLines(file))).split('\n').map((line) => line.trim());
    expect(lines[0]).toBe('nothing was published:');
    expect(lines[1]).toContain(`${file}:2: not UTF-8 JSON`);
    expect(lines[2]).toMatch(/:3: job_id: must be 1 to 64 characters .*"a\.b"/);
    expect(lines[3]).toContain(':4: unknown field "colour"');
    expect(lines[4]).toMatch(/:5: policy\.name: there is no policy "scriptd"; known are random, scripted/);
    expect(lines[5]).toContain(':6: schema: gymbus.job.v2 is for a later gymbus than this, which reads gymbus.job.v1');
    expect(lines).toHaveLength(6);
  });

  it('name a job once: the bus would keep the first and drop the second', async () => {
    const file = await linesFile(job(), job({ job_id: 'other' }), job({ instruction: 'Another.' }));
    expect(await refusal(readJobLines(file))).toContain(`${file}:3: night-42/rename-0007 is at ${file}:1 already`);
  });

  it('are told of up to twenty', async () => {
    const file = await linesFile(...Array.from({ length: 50 }, () => '{}'));
    const message = await refusal(readJobLines(file));
    expect(message.split('\n')).toHaveLength(22);
    expect(message).toContain('and 30 more');
  });

  it('must be there', async () => {
    expect(await refusal(readJobLines(await linesFile('', '')))).toContain('holds no job: one JSON object a line');
    expect(await refusal(readJobLines('/no/such.jsonl'))).toContain('cannot read /no/such.jsonl');
    expect(await refusal(readJobLines(folder))).toContain('| gymbus submit -');
  });
});

describe('OSWorld tasks', () => {
  const task = { id: 'e0df', instruction: 'Rename it.', config: [], evaluator: { func: 'infeasible' } };
  const options = { batch: 'night-42', policy: { name: 'scripted', params: { actions: [] } } };

  it('become jobs of the batch, their folder the domain', async () => {
    const file = path.join(folder, 'task.json');
    await writeFile(file, JSON.stringify(task));
    const [read] = await readOsworldTasks([file], options);
    expect(read?.address).toEqual({ image: 'debian-desktop', batch: 'night-42', job: 'e0df' });
    const body = JSON.parse(Buffer.from(read?.data ?? []).toString());
    expect(body.metadata).toMatchObject({ benchmark: 'osworld', task_id: 'e0df', domain: path.basename(folder) });
  });

  it('are refused by file, and twice the same is', async () => {
    const [wrong, unknown, good] = ['wrong', 'unknown', 'good'].map((name) => path.join(folder, `${name}.json`));
    await writeFile(wrong ?? '', '{"id": 1}');
    await writeFile(unknown ?? '', JSON.stringify({ ...task, evaluator: { func: 'compare_table' } }));
    await writeFile(good ?? '', JSON.stringify(task));
    const noJson = path.join(folder, 'LICENCE');
    await writeFile(noJson, 'Apache');
    const files = [wrong, unknown, good, good, noJson].map(String);
    const message = await refusal(readOsworldTasks(files, options));
    expect(message).toContain(`${wrong}: no OSWorld task: id`);
    expect(message).toContain(`${noJson}: not JSON: `);
    expect(message).toMatch(/unknown\.json: evaluator\.(func|result).*/);
    expect(message).toContain(`${good}: night-42/e0df is at ${good} already`);
  });
});
