import { expect, it } from 'vitest';
import { resultsSummary, resultsTable } from '../../../runner/cli/results.ts';
import { table } from '../../../runner/cli/table.ts';
import { sampleResult } from '../../support/samples.ts';

it('makes columns as wide as their widest cell, numbers to the right, nothing as a dash', () => {
  expect(
    table([
      { job: 'a-long-name', steps: 7, score: null },
      { job: 'b', steps: 120, score: 0.5 },
    ]).split('\n'),
  ).toEqual([
    'job          steps  score', //
    '-----------  -----  -----',
    'a-long-name      7      -',
    'b              120    0.5',
  ]);
});

it('leaves no blanks at the end of a line, and is empty without rows', () => {
  expect(table([{ a: 'xyz' }, { a: 'x' }])).toBe('a\n---\nxyz\nx');
  expect(table([]).trim()).toBe('');
});

const address = { batch: 'night-42', job: 'rename-0007', attempt: '1-abcdefgh' };
const trajectory = (job: string) => `s3://gymbus/batches/night-42/jobs/${job}/attempts/1-abcdefgh/`;
const results = [
  sampleResult(address, { trajectory: trajectory('rename-0007') }),
  sampleResult(
    { ...address, job: 'rename-0008' },
    {
      ...{ status: 'failed', valid: false, score: null, failure: { class: 'setup', message: 'no' } },
      trajectory: trajectory('rename-0008'),
    },
  ),
];

it('shows whole addresses where they fit, or where nobody looks', () => {
  for (const columns of [undefined, 200]) {
    const lines = resultsTable(results, columns).split('\n');
    expect(lines).toHaveLength(4);
    expect(lines[2]).toMatch(new RegExp(`^rename-0007 +completed +1 +1 +1 +${trajectory('rename-0007')}$`));
    expect(lines[3]).toMatch(/^rename-0008 +failed \(setup\) +- +1 +1 +s3:/);
  }
});

it('says what the addresses share once, where they do not fit', () => {
  const lines = resultsTable(results, 90).split('\n');
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(90);
  expect(lines[2]).toMatch(/ rename-0007\/attempts\/1-abcdefgh\/$/);
  expect(lines.at(-1)).toBe('trajectories are in s3://gymbus/batches/night-42/jobs/');
});

it('has nothing to shorten where there is no trajectory, or where they lie in several places', () => {
  expect(resultsTable([sampleResult(address)], 20)).not.toContain('trajectories are in');
  const elsewhere = sampleResult(address, { trajectory: 's3://other/batches/b/jobs/j/attempts/1-abcdefgh/' });
  expect(resultsTable([...results, elsewhere], 20)).toContain('s3://other/');
});

it('counts what is valid, what is not, and means over what was scored only', () => {
  expect(resultsSummary(results)).toBe('2 jobs: 1 valid, 1 not valid; mean score 1.000 over 1 scored');
  expect(resultsSummary(results.slice(1))).toBe('1 job: 0 valid, 1 not valid; none scored');
});
