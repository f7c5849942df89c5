import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { checkJob } from '../../functions/check-job.ts';
import { builtinFunctions } from '../../functions/registry.ts';
import { Action, TrajectoryJob, type TrajectoryJobInput } from '../../schemas/index.ts';
import { expectPlain, linesOf } from '../support/refusals.ts';
import { sampleJob } from '../support/samples.ts';

const { policies, setups, getters, metrics } = builtinFunctions;
const policy = (name: string) => policies.get(name)?.params ?? z.never();
const setup = (type: string) => setups.get(type)?.parameters ?? z.never();
const getter = (type: string) => getters.get(type)?.parameters ?? z.never();
const rules = (metric: string) => metrics.get(metric)?.expected ?? z.never();
const job = (over: object) => ({ ...sampleJob(), ...over });
const click = { type: 'click', x: 1, y: 2 };

/** Sound values of everything that a publisher writes. */
const SOUND: [string, z.ZodType, object][] = [
  [
    'job',
    TrajectoryJob,
    job({
      setup: [{ type: 'a' }],
      evaluator: { func: ['f'], result: [{ type: 'g' }], conj: 'or', postconfig: [] },
      limits: { max_steps: 3 },
      retry: { max_attempts: 2 },
      metadata: { a: 1 },
    }),
  ],
  ['click', Action, { ...click, button: 'left', count: 1, modifiers: ['alt'] }],
  [
    'drag',
    Action,
    {
      type: 'drag',
      path: [
        [1, 2],
        [3, 4],
      ],
      button: 'left',
    },
  ],
  ['hotkey', Action, { type: 'hotkey', keys: ['ctrl', 's'] }],
  ['wait', Action, { type: 'wait', seconds: 1 }],
  ['scripted', policy('scripted'), { actions: [click, [{ type: 'key', key: 'enter' }]] }],
  ['random', policy('random'), { steps: 5 }],
  [
    'execute',
    setup('execute'),
    { command: ['a'], shell: false, timeout: 1, until: { returncode: 0 }, expected_returncodes: [0], stdout: 'a' },
  ],
  ['launch', setup('launch'), { command: 'a b' }],
  ['sleep', setup('sleep'), { seconds: 1 }],
  ['download', setup('download'), { files: [{ url: 'https://example.org/a', path: 'a' }] }],
  ['upload_file', setup('upload_file'), { files: [{ path: 'a', content_base64: 'eA==' }] }],
  ['vm_command_line', getter('vm_command_line'), { command: 'ls', shell: true, timeout: 3 }],
  ['vm_file', getter('vm_file'), { path: ['a', 'b'], multi: true, gives: [1] }],
  ['rule', getter('rule'), { rules: 1 }],
  ['check_include_exclude', rules('check_include_exclude'), { include: ['a'] }],
  ['exact_match', rules('exact_match'), { expected: 'a' }],
  ['file_contains', rules('file_contains'), { expected: ['a'] }],
];

/** Every place in a value, by the keys that lead to it. */
function placesIn(value: unknown, path: string[] = []): string[][] {
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => placesIn(inner, [...path, key]))];
}

function changed(value: unknown, [key, ...rest]: string[], to: unknown): unknown {
  if (key === undefined) return to;
  const copy: Record<string, unknown> | unknown[] = Array.isArray(value) ? [...value] : { ...(value as object) };
  (copy as Record<string, unknown>)[key] = changed((value as Record<string, unknown>)[key], rest, to);
  return copy;
}

const anything = fc.oneof(
  fc.constantFrom<unknown>(
    undefined,
    null,
    true,
    -1,
    1.5,
    1e300,
    Number.NEGATIVE_INFINITY,
    '',
    '\0',
    'x'.repeat(70_000),
  ),
  fc.constantFrom<unknown>([], {}, [[]], [{}], new Array(2_000).fill(1), { unknown: 1 }, { type: 'x' }),
  fc.jsonValue({ maxDepth: 2 }),
);

describe('in plain words, whatever is written anywhere in', () => {
  it.each(SOUND)('%s', (_name, schema, sound) => {
    expect(linesOf(schema, sound)).toEqual([]);
    fc.assert(
      fc.property(fc.constantFrom(...placesIn(sound)), anything, (place, value) => {
        const lines = linesOf(schema, changed(sound, place, value));
        if (lines.length > 0) expectPlain(lines);
      }),
    );
  });

  it('a job, as it is checked before it is published', () => {
    const whole = TrajectoryJob.parse(
      sampleJob({
        policy: { name: 'scripted', params: { actions: 5 } },
        setup: [{ type: 'sleep', parameters: {} }],
      } satisfies Partial<TrajectoryJobInput>),
    );
    const lines = checkJob(whole);
    expect(lines).toEqual([
      'policy.params.actions: must be a list (got 5)',
      'setup.0.parameters.seconds: is missing, must be a number',
    ]);
    expectPlain(lines);
  });
});
