import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { EvaluatorError, type GetterFunction, type MetricFunction } from '../../../functions/contract.ts';
import { ByteBudget } from '../../../functions/evaluation/budget.ts';
import { type Evaluation, evaluate } from '../../../functions/evaluation/evaluate.ts';
import { type Guest, GuestFileError, GuestSilent } from '../../../functions/guest.ts';
import { builtinFunctions, functionTable } from '../../../functions/registry.ts';
import { type Action, Evaluator } from '../../../schemas/index.ts';
import { contextOf, job, LocalGuest, never } from './local-guest.ts';

let guest: LocalGuest;
beforeEach(() => {
  guest = new LocalGuest();
});
afterEach(() => guest[Symbol.dispose]());

/** Getters and metrics that say what the algorithm is to be given. */
const Value = z.looseObject({});
const says: GetterFunction<{ value?: unknown }> = {
  type: 'says',
  summary: 'what it is told to',
  parameters: Value,
  get: async ({ value }) => value ?? null,
};
const fails = (type: string, error: () => Error): GetterFunction => ({
  type,
  summary: 'fails',
  parameters: Value,
  get: async () => {
    throw error();
  },
});
const asked: unknown[] = [];
const number: MetricFunction<unknown, unknown> = {
  name: 'number',
  summary: 'the result itself',
  expected: null,
  options: z.unknown(),
  score: (result) => {
    asked.push(result);
    return Number(result);
  },
};
const functions = functionTable({
  policies: [],
  setups: [...builtinFunctions.setups.values()],
  getters: [
    ...builtinFunctions.getters.values(),
    says,
    fails('absent', () => new GuestFileError('ENOENT', '/x', 'no such file')),
    fails('silent', () => new GuestSilent('no answer')),
    fails('broken', () => new TypeError('a bug')),
  ],
  metrics: [...builtinFunctions.metrics.values(), number],
});

function score(
  evaluator: z.input<typeof Evaluator>,
  lastAction: Action | null = { type: 'done' },
  on: Guest = guest,
): Promise<Evaluation> {
  asked.length = 0;
  const postconfigListener = { started: () => {}, ended: async () => {} };
  const input = {
    evaluator: Evaluator.parse(evaluator),
    lastAction,
    functions,
    guest: on,
    context: contextOf(job()),
    postconfigListener,
  };
  return evaluate(input, never);
}
const numbers = (conj: 'and' | 'or', ...values: (number | 'absent' | 'silent')[]) =>
  score({
    func: values.map(() => 'number'),
    conj,
    result: values.map((value) => (typeof value === 'string' ? { type: value } : { type: 'says', value })),
  });

describe("OSWorld's algorithm", () => {
  it.each([
    ['and', [1, 1], 1, 2],
    ['and', [1, 0.5], 0.75, 2],
    ['and', [0.2, 0.4, 0.6], 0.4, 3],
    ['and', [0, 1], 0, 1],
    ['and', [1, 0, 1], 0, 2],
    ['or', [0, 0], 0, 2],
    ['or', [0.3, 0.7, 0.5], 0.7, 3],
    ['or', [1, 0.5], 1, 1],
    ['or', [0, 1, 1], 1, 2],
    ['and', [1], 1, 1],
    ['or', [0], 0, 1],
  ] as const)('%s over %j gives %d after %d metrics', async (conj, values, expected, calls) => {
    const { score: got, metrics } = await numbers(conj, ...values);
    expect(got).toBeCloseTo(expected);
    expect(asked).toHaveLength(calls);
    expect(metrics).toHaveLength(calls);
  });

  it('takes "no such file" for 0 under and at once, and for that metric alone under or', async () => {
    expect((await numbers('and', 1, 'absent', 1)).score).toBe(0);
    expect(asked).toHaveLength(1);
    expect((await numbers('or', 'absent', 0.5)).score).toBe(0.5);
    expect((await score({ func: 'number', conj: 'or', result: { type: 'absent' } })).score).toBe(0);
  });

  it('never reads what comes after an early end', async () => {
    await expect(numbers('and', 0, 'silent')).resolves.toMatchObject({ score: 0 });
    await expect(numbers('or', 1, 'silent')).resolves.toMatchObject({ score: 1 });
    await expect(numbers('or', 0, 'silent')).rejects.toBeInstanceOf(EvaluatorError);
  });

  it.each([
    [{ type: 'fail' }, 1],
    [{ type: 'fail', reason: 'cannot' }, 1],
    [{ type: 'done' }, 0],
    [{ type: 'type', text: 'FAIL' }, 0],
    [null, 0],
  ] as const)('infeasible after %j is %d', async (action, expected) =>
    expect((await score({ func: 'infeasible' }, action)).score).toBe(expected),
  );

  it('scores 0 a policy that gave up a task that can be done, without looking', async () => {
    expect((await score({ func: 'number', result: { type: 'silent' } }, { type: 'fail' })).score).toBe(0);
  });

  it('runs the postconfig first, even where the last action decides', async () => {
    const postconfig = [{ type: 'execute', parameters: { command: 'echo here > ~/after', shell: true } }];
    const result = { type: 'vm_command_line', command: 'cat ~/after', shell: true };
    const expected = { type: 'rule', rules: { expected: 'here\n' } };
    expect((await score({ func: 'exact_match', result, expected, postconfig })).score).toBe(1);
    await score({ func: 'infeasible', postconfig }, { type: 'fail' });
    expect(guest.commands).toHaveLength(3);
  });

  it.each([
    ['a silent guest', { func: 'number', result: { type: 'silent' } }, /result silent: no answer/],
    ['a getter that throws', { func: 'number', result: { type: 'broken' } }, /result broken: a bug/],
    ['a metric that gives no number', { func: 'number', result: { type: 'says', value: 'x' } }, /gave NaN/],
    ['a score out of bounds', { func: 'number', result: { type: 'says', value: 2 } }, /gave 2/],
    [
      'a command that hangs',
      { func: 'number', result: { type: 'vm_command_line', command: 'sleep 9', timeout: 0.1 } },
      /no answer within 0.1 s/,
    ],
    [
      'a postconfig that fails',
      { func: 'number', postconfig: [{ type: 'launch', parameters: { command: 'no-such' } }] },
      /postconfig: step 0/,
    ],
    [
      'an expected that fails',
      { func: 'exact_match', result: { type: 'says', value: 1 }, expected: { type: 'absent' } },
      /no such file/,
    ],
    [
      'an expected of another kind than is compared with',
      { func: 'file_contains', result: { type: 'says', value: 1 }, expected: { type: 'says', value: [5] } },
      /^metric file_contains: expected: must be an object with expected \(got \[5\]\)$/,
    ],
    ['an unknown metric', { func: 'nope' }, /no metric "nope"/],
    ['uneven lists', { func: ['number', 'number'], result: [{ type: 'says' }] }, /has 1 entries and func 2/],
  ])('%s is no score', async (_, evaluator, message) => {
    const error = await score(evaluator).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(EvaluatorError);
    expect(error.message).toMatch(message);
  });

  it('keeps the cause of a failure', async () => {
    const error = await score({ func: 'number', result: { type: 'silent' } }).catch((thrown) => thrown);
    expect(error.cause).toBeInstanceOf(GuestSilent);
  });
});

describe('vm_file', () => {
  const contains = (path: string | string[], more: object = {}) =>
    score({
      func: 'file_contains',
      result: { type: 'vm_file', path, dest: 'x', ...more },
      expected: { type: 'rule', rules: { expected: ['CPU', '%idle'] } },
    });

  it('reads a file, and a missing one or a folder is a valid 0', async () => {
    mkdirSync(path.join(guest.home, 'Desktop'));
    writeFileSync(path.join(guest.home, 'Desktop/r.txt'), 'CPU %user\r\n%idle');
    expect((await contains('/home/user/Desktop/r.txt')).score).toBe(1);
    expect((await contains('~/Desktop/r.txt')).score).toBe(1);
    expect((await contains('/home/user/Desktop/none.txt')).score).toBe(0);
    expect((await contains('/home/user/Desktop/r.txt/under')).score).toBe(0);
    expect((await contains('/home/user/Desktop')).score).toBe(0);
  });

  it('is no score when it is too large or the disk is broken', async () => {
    for (const code of ['EFBIG', 'EIO']) {
      const on: Guest = Object.assign(Object.create(guest), {
        readFile: () => Promise.reject(new GuestFileError(code, '/x', 'no')),
      });
      const evaluator = { func: 'number', result: { type: 'vm_file', path: '/x' } };
      await expect(score(evaluator, null, on)).rejects.toThrow(code);
    }
  });

  it('takes from one budget for all files and commands of an evaluation', async () => {
    const asked: number[] = [];
    const MiB = 2 ** 20;
    const on: Guest = Object.assign(Object.create(guest), {
      readFile: async (name: string, { maxBytes }: { maxBytes: number }) => {
        asked.push(maxBytes);
        if (maxBytes < 24 * MiB) throw new GuestFileError('EFBIG', name, 'too large');
        return Buffer.alloc(24 * MiB);
      },
    });
    const file = { type: 'vm_file', path: '/a' };
    const whole = { type: 'vm_file', path: ['/a', '/b', '/c'], multi: true, gives: [0, 1, 2] };
    const error = await score({ func: 'number', result: whole }, { type: 'done' }, on).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(EvaluatorError);
    expect(error.message).toMatch(/\(EFBIG\): an evaluation takes at most 67108864 bytes .* has 16777216 left/);
    expect(asked).toEqual([64 * MiB, 40 * MiB, 16 * MiB]);
    asked.length = 0;
    const contains = { type: 'rule', rules: { expected: ['x'] } };
    await expect(
      score(
        {
          func: Array(4).fill('file_contains'),
          conj: 'or',
          result: Array(4).fill(file),
          expected: Array(4).fill(contains),
        },
        { type: 'done' },
        on,
      ),
    ).rejects.toThrow(/EFBIG/);
    expect(asked, 'those of the metrics before count').toEqual([64 * MiB, 40 * MiB, 16 * MiB]);
  });

  it('gives those of several that are named, in order', async () => {
    for (const name of ['a', 'b', 'c']) writeFileSync(path.join(guest.home, name), name);
    const vmFile = functions.getters.get('vm_file');
    const get = (more: object) => {
      const parameters = vmFile?.parameters.parse({
        path: ['~/a', '~/b', '~/none'],
        dest: ['a', 'b', 'c'],
        multi: true,
        ...more,
      });
      return vmFile?.get(parameters, guest, { ...contextOf(job()), budget: new ByteBudget() }, never);
    };
    expect(String(await get({}))).toBe('a');
    expect(await get({ gives: [1, 2] })).toEqual([Buffer.from('b'), null]);
    expect(await get({ gives: [2] })).toBeNull();
  });
});

describe('metrics', () => {
  const metric = async (name: string, result: unknown, expected?: unknown): Promise<number> => {
    const found = builtinFunctions.metrics.get(name);
    return (await found?.score(result, found.expected?.parse(expected), {}, never)) ?? Number.NaN;
  };
  const timedatectl = (zone: string): string =>
    [
      '               Local time: Thu 2024-01-25 12:56:06 WET',
      '           Universal time: Thu 2024-01-25 12:56:06 UTC',
      '                 RTC time: Thu 2024-01-25 12:56:05',
      `                Time zone: ${zone}`,
      'System clock synchronized: yes',
      '              NTP service: inactive',
      '          RTC in local TZ: no',
      '',
    ].join('\n');

  it.each([
    ['true\n', 'true\n', 1],
    ['true', 'true\n', 0],
    ['', 'x', 0],
    [null, 'x', 0],
    [['a', 1], ['a', 1], 1],
    [{ a: [1] }, { a: [2] }, 0],
  ])('exact_match of %j and %j is %d', async (result, expected, score) =>
    expect(await metric('exact_match', result, { expected })).toBe(score),
  );

  it.each([
    ['GIMP filters-vignette ok', { include: ['filters-vignette'], exclude: ['error', 'failed'] }, 1],
    ['filters-vignette failed', { include: ['filters-vignette'], exclude: ['error', 'failed'] }, 0],
    ['nothing', { include: ['filters-vignette'] }, 0],
    ['use no terminal', { include: ['use terminal'] }, 0],
    [null, { exclude: ['x'] }, 0],
    [['a', 'b'], { include: ['a'], exclude: ['c'] }, 1],
    [['ab'], { include: ['a'] }, 0],
  ])('check_include_exclude of %j by %j is %d', async (result, rules, score) =>
    expect(await metric('check_include_exclude', result, rules)).toBe(score),
  );

  it.each([
    ['Etc/UTC (UTC, +0000)', 1],
    ['Atlantic/Faroe (WET, +0000)', 1],
    ['America/New_York (EST, -0500)', 0],
    ['Asia/Kolkata (IST, +0530)', 0],
  ])('is_utc_0 of %s is %d', async (zone, score) => expect(await metric('is_utc_0', timedatectl(zone))).toBe(score));

  it.each([
    ['is_utc_0', ''],
    ['is_utc_0', null],
    ['exact_match', Buffer.from('x')],
    ['check_include_exclude', 5],
    ['file_contains', 'a text'],
    ['file_contains', [Buffer.from('x')]],
  ])('%s has no score for %j', async (name, result) =>
    expect(
      metric(name, result, name === 'check_include_exclude' ? { include: ['x'] } : { expected: ['x'] }),
    ).rejects.toThrow(EvaluatorError),
  );

  it('of a large file and many texts gives way, and ends when it is told to', async () => {
    const file = Buffer.alloc(64 * 2 ** 20, 'a');
    const expected = Array.from({ length: 900 }, (_, n) => `${'a'.repeat(n % 60)}b${n}`);
    const found = builtinFunctions.metrics.get('file_contains');
    const stop = new AbortController();
    const scoring = Promise.resolve(found?.score(file, { expected }, {}, stop.signal));
    setImmediate(() => setImmediate(() => stop.abort(new Error('told to'))));
    await expect(scoring).rejects.toThrow('told to');
  });

  it.each([
    ['a.txt\r\nb\rc', ['txt\nb\nc'], 1],
    ['\ufeffa', ['\ufeffa'], 1],
    ['abc', ['', 'abc', 'b', 'abcd'], 0],
    ['', [''], 1],
  ])('file_contains of %j by %j is %d', async (text, expected, score) =>
    expect(await metric('file_contains', Buffer.from(text), { expected })).toBe(score),
  );
});
