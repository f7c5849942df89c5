import { describe, expect, it } from 'vitest';
import { parseAttempt, parseBatch, parseFolder, parseJobAddress } from '../../../runner/cli/address.ts';
import { CliError, EXIT } from '../../../runner/cli/error.ts';

describe('a batch id', () => {
  it.each(['night-42', 'A_b', 'x'.repeat(64)])('%s is one', (text) => expect(parseBatch(text)).toBe(text));

  it.each(['', 'a.b', 'a/b', 'a b', 'a*', 'a>', 'ä', 'x'.repeat(65)])('%j is none: a wrong call', (text) => {
    expect(() => parseBatch(text)).toThrow(CliError);
    expect(() => parseBatch(text)).toThrow(expect.objectContaining({ exitCode: EXIT.usage }));
    expect(() => parseBatch(text)).toThrow(JSON.stringify(text));
  });
});

describe('BATCH/JOB', () => {
  it('names a job', () => expect(parseJobAddress('night-42/rename-7')).toEqual({ batch: 'night-42', job: 'rename-7' }));

  it.each(['night-42', 'night-42/', '/rename-7', 'a/b/c', '../b', 'a/..', 'a.b/c', 'night-42/rename 7'])(
    '%j names none: a wrong call',
    (text) => {
      expect(() => parseJobAddress(text)).toThrow(expect.objectContaining({ exitCode: EXIT.usage }));
      expect(() => parseJobAddress(text)).toThrow('BATCH/JOB');
    },
  );
});

describe('an attempt', () => {
  it('is named as folders name it', () => expect(parseAttempt('1-k3x9q2mv')).toBe('1-k3x9q2mv'));

  it.each(['', '1', '../x', '0-k3x9q2mv', `1-${'x'.repeat(40)}`])('%j is none: a wrong call', (text) => {
    expect(() => parseAttempt(text)).toThrow(expect.objectContaining({ exitCode: EXIT.usage }));
    expect(() => parseAttempt(text)).toThrow(`${JSON.stringify(text)} is no attempt`);
  });
});

it('a folder is never the one we are in by an empty word', () => {
  expect(parseFolder('.')).toBe('.');
  expect(() => parseFolder('')).toThrow(expect.objectContaining({ exitCode: EXIT.usage }));
});

it('what is long is cut', () => {
  const long = 'x'.repeat(5_000);
  for (const parse of [parseBatch, parseJobAddress, parseAttempt]) {
    expect(() => parse(long)).toThrow(/^"x{76}\.\.\. /);
  }
});
