import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DELIVER_LIMIT_MS } from '../../runner/bus/lease.ts';
import { parseJob, TrajectoryJob } from '../../schemas/index.ts';
import { sampleJob } from '../support/samples.ts';

const parse = (body: unknown) => parseJob(Buffer.from(JSON.stringify(body)));
const reasonOf = (body: unknown): string => {
  const parsed = parse(body);
  if (parsed.kind !== 'invalid') throw new Error(`expected invalid, got ${parsed.kind}`);
  return parsed.reason;
};

describe('a job', () => {
  it('needs six fields; the rest has defaults', () => {
    expect(parse(sampleJob())).toEqual({
      kind: 'job',
      job: {
        ...sampleJob(),
        setup: [],
        policy: { name: 'scripted', params: {} },
        observation: { screenshot: true, a11y_tree: false },
        limits: { max_steps: 15, setup_s: 60, step_s: 30, evaluate_s: 60, total_s: 600 },
        retry: { max_attempts: 3 },
        seed: 0,
        metadata: {},
      },
    });
  });

  it('keeps the other limits when one is given', () => {
    const parsed = parse(sampleJob({ limits: { max_steps: 3 } }));
    expect(parsed).toMatchObject({ job: { limits: { max_steps: 3, total_s: 600 } } });
  });

  it('with everything given comes out as it went in', () => {
    const whole = TrajectoryJob.parse(
      sampleJob({
        setup: [{ type: 'execute', parameters: { command: ['mkdir', 'todo'] } }],
        policy: { name: 'scripted', params: { actions: [{ type: 'done' }] } },
        evaluator: {
          func: ['exact_match', 'is_utc_0'],
          result: [{ type: 'vm_command_line', command: 'ls', shell: true }, null],
          expected: [{ type: 'rule', rules: { expected: 'done\n' } }, null],
          conj: 'or',
        },
        metadata: { group: 'g1', nested: { deep: [1, null, 'ä'] } },
        seed: 7,
      }),
    );
    expect(parse(whole)).toEqual({ kind: 'job', job: whole });
  });

  it('names an unknown field, wherever it is', () => {
    expect(reasonOf({ ...sampleJob(), colour: 'red' })).toMatch(
      /^unknown field "colour"; known are schema, batch_id, job_id, .*metadata$/,
    );
    expect(reasonOf({ ...sampleJob(), policy: { name: 'x', parms: {} } })).toBe(
      'policy: unknown field "parms"; known are name, params',
    );
    expect(reasonOf({ ...sampleJob(), setup: [{ type: 'sleep', seconds: 1 }] })).toBe(
      'setup.0: unknown field "seconds"; known are type, parameters',
    );
    expect(reasonOf({ ...sampleJob(), limits: { max_step: 3 } })).toBe(
      'limits: unknown field "max_step"; known are max_steps, setup_s, step_s, evaluate_s, total_s',
    );
  });

  it('of wrong types: every field is named with the value received', () => {
    const reason = reasonOf({ ...sampleJob(), instruction: 42, limits: { max_steps: 'many' }, seed: -1 });
    expect(reason).toMatch(/instruction: .*\(got 42\)/);
    expect(reason).toMatch(/limits\.max_steps: .*\(got "many"\)/);
    expect(reason).toMatch(/seed: .*\(got -1\)/);
  });

  it('with a field missing says so', () => {
    const { instruction: _, ...rest } = sampleJob();
    expect(reasonOf(rest)).toBe('instruction: is missing, must be a text');
  });

  it.each(['a.b', 'a/b', '..', 'a b', 'ä', '', 'x'.repeat(65), '*', '>'])('refuses the id %j, with its value', (id) => {
    expect(reasonOf({ ...sampleJob(), job_id: id })).toContain(`(got ${JSON.stringify(id).slice(0, 70)}`);
    expect(reasonOf({ ...sampleJob(), batch_id: id })).toMatch(/^batch_id: /);
    expect(reasonOf({ ...sampleJob(), image: id })).toMatch(/^image: /);
  });

  it.each(['a', 'A-b_9', 'x'.repeat(64)])('takes the id %j', (id) => {
    expect(parse(sampleJob({ job_id: id, batch_id: id, image: id })).kind).toBe('job');
  });

  it.each(['[]', 'null', '42', '"job"'])('is no %s', (text) => {
    expect(parseJob(Buffer.from(text))).toMatchObject({
      kind: 'invalid',
      reason: expect.stringMatching(/^\(the whole\): /),
    });
  });

  it('is UTF-8 JSON', () => {
    expect(parseJob(Buffer.from('{"schema":'))).toMatchObject({
      kind: 'invalid',
      reason: expect.stringMatching(/not UTF-8 JSON/),
    });
    expect(parseJob(new Uint8Array())).toMatchObject({ kind: 'invalid' });
    const latin1 = Buffer.from(JSON.stringify(sampleJob({ instruction: 'Ordner öffnen' })), 'latin1');
    expect(parseJob(latin1)).toMatchObject({ kind: 'invalid', reason: expect.stringMatching(/not UTF-8 JSON/) });
  });

  it.each(['gymbus.job.v1.1', 'gymbus.job.v1.12', 'gymbus.job.v2', 'gymbus.job.v2.1'])(
    'of version %s is for a newer runner, whatever else it holds',
    (version) => {
      expect(parse({ ...sampleJob(), schema: version, colour: 'red' })).toEqual({ kind: 'newer', version });
    },
  );

  it.each(['gymbus.job.v0', 'gymbus.job', 'other.job.v1', 1, null, undefined])('of schema %j is wrong', (schema) => {
    expect(reasonOf({ ...sampleJob(), schema })).toMatch(/^schema: /);
  });

  it.each([50, 65, 2_000, 100_000])('with %i lists within each other in a field that takes anything', (lists) => {
    const open: ((deep: string) => object)[] = [
      (deep) => sampleJob({ metadata: { deep } }),
      (deep) => sampleJob({ policy: { name: 'scripted', params: { deep } } }),
      (deep) => sampleJob({ evaluator: { func: 'exact_match', result: { type: 'rule', rules: { deep } } } }),
    ];
    for (const make of open) {
      const text = JSON.stringify(make('here')).replace('"here"', '['.repeat(lists) + ']'.repeat(lists));
      const parsed = parseJob(Buffer.from(text));
      if (lists === 50) expect(parsed.kind).toBe('job');
      else expect(parsed).toEqual({ kind: 'invalid', reason: 'nested more than 64 levels deep' });
    }
  });

  it.each<[string, object]>([
    ['setup', { setup: [{ type: 'execute', parameters: { command: Array(240_000).fill(0) } }] }],
    ['evaluator.func', { evaluator: { func: Array(110_000).fill('a') } }],
    ['evaluator.result', { evaluator: { func: 'a', result: Array(240_000).fill(0) } }],
    ['policy', { policy: { name: 'scripted', params: { actions: Array(150_000).fill({}) } } }],
    ['metadata', { metadata: { tokens: Array(60_000).fill([]) } }],
    ['fields', Object.fromEntries(Array.from({ length: 40_000 }, (_, n) => [`k${n}`, 0]))],
  ])('with very many values is refused before they are looked at: %s', (_, change) => {
    expect(reasonOf({ ...sampleJob(), ...change })).toMatch(/^has more than 20000 values .*inputs\/<batch>\//);
  });

  it('bounds the lists of its evaluator, and names the one that is too long', () => {
    const many = <T>(item: T): T[] => Array<T>(65).fill(item);
    expect(reasonOf({ ...sampleJob(), evaluator: { func: many('a'), result: many(null) } })).toMatch(
      /^evaluator\.func: must have at most 64 entries, has 65 .*; evaluator\.result: must have at most 64 entries/,
    );
    const postconfig = Array(257).fill({ type: 'sleep' });
    expect(reasonOf({ ...sampleJob(), evaluator: { func: 'a', postconfig } })).toMatch(
      /^evaluator\.postconfig: must have at most 256 entries, has 257/,
    );
  });

  it('ends well within the time that one delivery of it has', () => {
    const { total_s } = TrajectoryJob.parse(sampleJob({ limits: { total_s: 18_000 } })).limits;
    expect(total_s * 1_000).toBeLessThan(DELIVER_LIMIT_MS - 1_800_000);
    expect(reasonOf(sampleJob({ limits: { total_s: 18_001 } }))).toMatch(/^limits\.total_s: .*18000/);
  });

  it('with a mistake made many times tells it some times', () => {
    const reason = reasonOf({ ...sampleJob(), evaluator: { func: 'f', postconfig: new Array(50).fill(0) } });
    expect(reason.match(/postconfig/g)).toHaveLength(20);
    expect(reason).toMatch(/; and 30 more$/);
  });

  it('with metadata that would be too large in its result is refused', () => {
    // Five bytes each as they come, 22 as they go.
    const bytes = JSON.stringify(sampleJob({ metadata: { n: 'here' } })).replace(
      '"here"',
      `[${'1e20,'.repeat(15_000)}0]`,
    );
    expect(parseJob(Buffer.from(bytes))).toMatchObject({ reason: expect.stringMatching(/^metadata: .*256 KiB/) });
    expect(parse(sampleJob({ metadata: { s: 'x'.repeat(260_000) } })).kind).toBe('job');
  });

  it('never throws, whatever bytes come', () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => parseJob(bytes).kind === 'invalid'));
    fc.assert(fc.property(fc.json(), (text) => parseJob(Buffer.from(text)).kind === 'invalid'));
  });

  it('changed in one place by any value is never accepted as something else', () => {
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(sampleJob())), fc.jsonValue(), (field, value) => {
        const parsed = parse({ ...sampleJob(), [field]: value });
        if (parsed.kind === 'job') expect(parsed.job[field as keyof typeof parsed.job]).toBeDefined();
        if (parsed.kind === 'invalid') expect(parsed.reason).toContain(field);
      }),
    );
  });
});
