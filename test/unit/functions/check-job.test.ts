import { describe, expect, it } from 'vitest';
import { checkJob } from '../../../functions/check-job.ts';
import { builtinFunctions, functionNames } from '../../../functions/registry.ts';
import type { TrajectoryJobInput } from '../../../schemas/index.ts';
import { job } from './local-guest.ts';

const problems = (change: Partial<TrajectoryJobInput>): string[] => checkJob(job(change));
const scripted = (...actions: unknown[]) => problems({ policy: { name: 'scripted', params: { actions } as never } });
const setup = (type: string, parameters: object) => problems({ setup: [{ type, parameters: parameters as never }] });
const rule = (rules: unknown) => ({ type: 'rule', rules });

describe('a job is checked before a guest is touched', () => {
  it('has no complaint about a sound one', () => {
    expect(
      problems({
        setup: [
          { type: 'execute', parameters: { command: 'echo {CLIENT_PASSWORD} | sudo -S true', shell: true } },
          { type: 'launch', parameters: { command: ['xterm'] } },
          { type: 'sleep', parameters: { seconds: 0.5 } },
          { type: 'upload_file', parameters: { files: [{ path: '~/a', content_base64: 'eA==' }] } },
          {
            type: 'download',
            parameters: {
              files: [
                { url: 'https://example.org/a', path: 'a' },
                { s3_key: 'b', path: 'b' },
              ],
            },
          },
        ],
        evaluator: {
          func: ['exact_match', 'is_utc_0'],
          result: [rule(1), { type: 'vm_command_line', command: 'timedatectl', shell: true }],
          expected: [rule({ expected: 1 }), null],
          options: [{}, null],
        },
      }),
    ).toEqual([]);
  });

  it('names unknown functions and those that are known', () => {
    expect(problems({ policy: { name: 'scriptd' } })).toEqual([
      'policy.name: there is no policy "scriptd"; known are random, scripted',
    ]);
    expect(setup('open', { path: 'x' })[0]).toMatch(
      /^setup\.0\.type: there is no set-up type "open"; known are command, /,
    );
    expect(problems({ evaluator: { func: 'compare_table', postconfig: [{ type: 'act', parameters: {} }] } })).toEqual([
      expect.stringMatching(/^evaluator\.postconfig\.0\.type: there is no set-up type "act"/),
      expect.stringMatching(/^evaluator\.func: there is no metric "compare_table"; known are .*infeasible/),
    ]);
    expect(problems({ evaluator: { func: 'is_utc_0', result: { type: 'cache_file' } } })[0]).toMatch(
      /^evaluator\.result\.type: there is no getter "cache_file"/,
    );
  });

  it('tells of each wrong action its place, the value and what it may be', () => {
    expect(
      scripted({ type: 'clik' }, { type: 'click', x: 'a', y: 1 }, [{ type: 'wait', seconds: -1 }], 5, {
        type: 'done',
        x: 1,
      }),
    ).toEqual([
      expect.stringMatching(/^policy\.params\.actions\.0\.type: must be one of click, .*\(got "clik"\)$/),
      'policy.params.actions.1.x: must be a number (got "a")',
      expect.stringMatching(/^policy\.params\.actions\.2\.0\.seconds: .*\(got -1\)$/),
      expect.stringMatching(/^policy\.params\.actions\.3: .*\(got 5\)$/),
      'policy.params.actions.4: unknown field "x"; known are type, answer',
    ]);
    expect(problems({ policy: { name: 'scripted' } })[0]).toMatch(/^policy\.params\.actions: /);
    expect(scripted([])[0]).toMatch(/^policy\.params\.actions\.0/);
  });

  it.each([
    ['execute', {}, /command: is missing/],
    ['execute', { command: [] }, /command/],
    ['execute', { command: '' }, /command/],
    ['execute', { command: '   ' }, /command: names no program/],
    ['execute', { command: 'say "hello' }, /the quote " is never closed.*"shell": true/],
    ['execute', { command: 'a\0b' }, /NUL/],
    ['execute', { command: 'x', on_nonzero: 'score_zero' }, /unknown field "on_nonzero"/],
    ['execute', { command: 'x', timeout: 0 }, /timeout/],
    [
      'execute',
      { command: 'x', until: { stdot: 'y' } },
      /until: unknown field "stdot"; known are returncode, stdout, stderr$/,
    ],
    ['launch', { command: 'x', shell: 'yes' }, /shell/],
    ['sleep', { seconds: '1' }, /seconds: must be a number \(got "1"\)/],
    ['upload_file', { files: [{ path: 'a', local_path: '/etc/shadow' }] }, /cannot name files of a host/],
    [
      'upload_file',
      { files: [{ path: 'a', key: 'b' }] },
      /unknown field "key"; known are path, content_base64, s3_key$/,
    ],
    ['upload_file', { files: [{ path: 'a' }] }, /needs one of content_base64 and s3_key/],
    ['upload_file', { files: [{ path: 'a', s3_key: 'b', content_base64: '' }] }, /needs one of/],
    ['upload_file', { files: [{ path: 'a', content_base64: '%' }] }, /content_base64/],
    ['upload_file', { files: [{ path: '~root/a', content_base64: '' }] }, /only the desktop user's own home/],
    ['upload_file', { files: [{ path: 'a', s3_key: '../b2/x' }] }, /files\.0\.s3_key: .*not a file under inputs\/b1\//],
    ['download', { files: [{ url: 'file:///etc/passwd', path: 'a' }] }, /url: must be an http/],
    ['download', { files: [{ url: 'ftp://x/y', path: 'a' }] }, /url: must be an http/],
    ['download', { files: [{ url: 's3://gymbus/images/x', path: 'a' }] }, /files\.0\.url: .*not a file under/],
    ['download', { files: [{ path: 'a' }] }, /needs one of url and s3_key/],
  ])('%s %j', (type, parameters, message) => {
    const found = setup(type, parameters);
    expect(found[0]).toMatch(message);
    expect(found[0]).toMatch(/^setup\.0\.parameters[.:]/);
  });

  it.each([
    [
      { func: ['exact_match'], result: rule(1), expected: [rule({ expected: 1 })] },
      /^evaluator\.result: must be a list of 1/,
    ],
    [{ func: 'exact_match', result: [rule(1)], expected: rule({ expected: 1 }) }, /^evaluator\.result: must be one/],
    [{ func: ['is_utc_0', 'is_utc_0'], result: [rule(1)] }, /^evaluator\.result: has 1 entries and func 2/],
    [{ func: [] }, /^evaluator\.func: is an empty list/],
    [{ func: 'is_utc_0' }, /^evaluator\.result: metric is_utc_0 needs a result/],
    [
      { func: ['is_utc_0', 'is_utc_0'], result: [rule(''), null] },
      /^evaluator\.result\.1: metric is_utc_0 needs a result/,
    ],
    [
      { func: 'is_utc_0', result: rule(''), expected: rule(1) },
      /^evaluator\.expected: metric is_utc_0 compares with nothing/,
    ],
    [{ func: 'exact_match', result: rule(1) }, /^evaluator\.expected: metric exact_match needs something to compare/],
    [{ func: 'exact_match', result: rule(1), expected: rule({}) }, /^evaluator\.expected\.rules\.expected: is missing/],
    [
      { func: 'file_contains', result: rule(1), expected: rule({ expected: 'CPU' }) },
      /^evaluator\.expected\.rules\.expected: .*\(got "CPU"\)/,
    ],
    [
      { func: 'file_contains', result: rule(1), expected: rule({ expected: [] }) },
      /^evaluator\.expected\.rules\.expected: /,
    ],
    // What names nothing is met by everything: a score of 1, whatever the policy did.
    [
      { func: 'check_include_exclude', result: rule(1), expected: rule({ includes: ['a'] }) },
      /^evaluator\.expected\.rules: unknown field "includes"; known are include, exclude$/,
    ],
    [
      { func: 'check_include_exclude', result: rule(1), expected: rule({}) },
      /^evaluator\.expected\.rules: names nothing to include or exclude/,
    ],
    [{ func: 'is_utc_0', result: rule(1), options: { strict: true } }, /^evaluator\.options: unknown field "strict"/],
    [
      { func: ['infeasible', 'is_utc_0'], result: [null, rule(1)] },
      /^evaluator\.func\.0: "infeasible" .* stands alone/,
    ],
    [{ func: 'is_utc_0', result: { type: 'vm_command_line' } }, /^evaluator\.result\.command: is missing/],
    [{ func: 'is_utc_0', result: { type: 'vm_file', path: ['a'] } }, /^evaluator\.result\.path: needs "multi": true/],
    [
      { func: 'is_utc_0', result: { type: 'vm_file', path: ['a'], multi: 'true', gives: [1] } },
      /^evaluator\.result\.gives: names path 1/,
    ],
  ])('evaluator %j', (evaluator, message) => expect(problems({ evaluator: evaluator as never })[0]).toMatch(message));

  it('says that no accessibility tree is taken', () =>
    expect(problems({ observation: { a11y_tree: true } })).toEqual([
      expect.stringMatching(/^observation\.a11y_tree: .*set it to false/),
    ]));

  it('tells everything that is wrong at once', () =>
    expect(
      problems({ policy: { name: 'x' }, setup: [{ type: 'y' }, { type: 'z' }], evaluator: { func: 'w' } }),
    ).toHaveLength(4));
});

it('a runner says what it can do', () => {
  expect(functionNames()).toEqual(
    expect.arrayContaining([
      'policy:scripted',
      'setup:execute',
      'setup:command',
      'getter:rule',
      'metric:exact_match',
      'metric:infeasible',
    ]),
  );
});

describe('a job that has very much of something', () => {
  it('tells the first of very many problems, and looks at nothing after them', () => {
    let looks = 0;
    const sleep = builtinFunctions.setups.get('sleep');
    if (!sleep) throw new Error('no sleep');
    const counted = { ...sleep, type: 'counted', check: () => [`seconds: look ${++looks}`] };
    const functions = { ...builtinFunctions, setups: new Map([['counted', counted]]) };
    const many = Array.from({ length: 256 }, () => ({ type: 'counted', parameters: { seconds: 1 } }));
    const found = checkJob(job({ setup: many }), functions);
    expect(found).toHaveLength(21);
    expect(found.at(-1)).toBe('and more');
    expect(looks).toBeLessThanOrEqual(21);
  });

  it.each<[string, object, RegExp]>([
    ['a command', { command: Array(4_097).fill('a') }, /command: must have at most 4096 entries, has 4097/],
    ['an exit code', { command: 'a', expected_returncodes: Array(257).fill(0) }, /at most 256 entries/],
    ['what is awaited', { command: 'a', until: { stdout: 'a'.repeat(16_385) } }, /at most 16384 characters/],
  ])('bounds %s of a set-up', (_, parameters, message) => {
    expect(setup('execute', parameters)).toEqual([expect.stringMatching(message)]);
  });

  it.each<[string, object, object, RegExp]>([
    ['paths', { path: Array(65).fill('/a'), multi: true }, { expected: ['a'] }, /result\.path: .*at most 64 entries/],
    [
      'names given',
      { path: '/a', gives: Array(65).fill(0) },
      { expected: ['a'] },
      /result\.gives: .*at most 64 entries/,
    ],
    [
      'texts',
      { path: '/a' },
      { expected: Array(1_001).fill('a') },
      /rules\.expected: .*at most 1000 entries, has 1001/,
    ],
    [
      'their length',
      { path: '/a' },
      { expected: ['a'.repeat(65_537)] },
      /rules\.expected: .*at most 65536 characters in all/,
    ],
  ])('bounds %s of an evaluator', (_, result, rules, message) => {
    const evaluator = { func: 'file_contains', result: { type: 'vm_file', ...result }, expected: rule(rules) };
    expect(problems({ evaluator })).toEqual([expect.stringMatching(message)]);
  });
});
