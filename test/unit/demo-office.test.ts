import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { checkJob } from '../../functions/check-job.ts';
import { batchOf } from '../../infra/demo/batch.ts';
import { OFFICE_JOBS } from '../../infra/demo/office.ts';
import { parseJob } from '../../schemas/index.ts';

const file = path.resolve(import.meta.dirname, '../../infra/demo/office.jsonl');

it('is a file of the jobs that are played, for everybody to publish', async () => {
  // Written anew by: npm test -- test/unit/demo-office.test.ts -u
  const lines = batchOf('office', 'office-demo', OFFICE_JOBS).map((job) => `${JSON.stringify(job)}\n`);
  await expect(lines.join('')).toMatchFileSnapshot(file);
});

it('holds jobs that a runner plays', async () => {
  const lines = (await readFile(file, 'utf8')).trim().split('\n');
  expect(lines.length).toBe(OFFICE_JOBS.length);
  for (const line of lines) {
    const parsed = parseJob(Buffer.from(line));
    if (parsed.kind !== 'job') throw new Error(JSON.stringify(parsed));
    expect(checkJob(parsed.job)).toEqual([]);
  }
});
