import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { builtinFunctions } from '../../functions/registry.ts';
import { Action, TrajectoryJob } from '../../schemas/index.ts';
import { expectPlain, linesOf } from '../support/refusals.ts';
import { sampleJob } from '../support/samples.ts';

const { policies, setups, getters, metrics } = builtinFunctions;
const policy = (name: string) => policies.get(name)?.params ?? z.never();
const setup = (type: string) => setups.get(type)?.parameters ?? z.never();
const getter = (type: string) => getters.get(type)?.parameters ?? z.never();
const rules = (metric: string) => metrics.get(metric)?.expected ?? z.never();
const options = (metric: string) => metrics.get(metric)?.options ?? z.never();
const job = (over: object) => ({ ...sampleJob(), ...over });
const click = { type: 'click', x: 1, y: 2 };
const ACTIONS =
  'click, move, mouse_down, mouse_up, drag, scroll, type, key, key_down, key_up, hotkey, wait, done, fail';

/** Every kind of issue that our schemas give, by who is told of it. */
const REFUSED: [string, z.ZodType, unknown, string][] = [
  ['job: missing', TrajectoryJob, job({ instruction: undefined }), 'it.instruction: is missing, must be a text'],
  ['job: missing', TrajectoryJob, job({ schema: undefined }), 'it.schema: is missing, must be "gymbus.job.v1"'],
  [
    'job: missing',
    TrajectoryJob,
    job({ policy: undefined }),
    'it.policy: is missing, must be an object with name, params',
  ],
  ['job: wrong type', TrajectoryJob, job({ instruction: 42 }), 'it.instruction: must be a text (got 42)'],
  ['job: wrong type', TrajectoryJob, job({ metadata: [1] }), 'it.metadata: must be an object (got [1])'],
  ['job: wrong type', TrajectoryJob, job({ setup: {} }), 'it.setup: must be a list (got {})'],
  [
    'job: wrong type',
    TrajectoryJob,
    job({ observation: { screenshot: 'no' } }),
    'it.observation.screenshot: must be true or false (got "no")',
  ],
  [
    'job: wrong type',
    TrajectoryJob,
    job({ policy: 'random' }),
    'it.policy: must be an object with name, params (got "random")',
  ],
  [
    'job: wrong type of a union',
    TrajectoryJob,
    job({ evaluator: { func: 5 } }),
    'it.evaluator.func: must be a text or a list (got 5)',
  ],
  [
    'job: wrong type in a union',
    TrajectoryJob,
    job({ evaluator: { func: ['a', 5] } }),
    'it.evaluator.func.1: must be a text (got 5)',
  ],
  [
    'job: missing in a union',
    TrajectoryJob,
    job({ evaluator: { func: 'f', result: [{}] } }),
    'it.evaluator.result.0.type: is missing, must be a text',
  ],
  ['job: wrong constant', TrajectoryJob, job({ schema: 'job' }), 'it.schema: must be "gymbus.job.v1" (got "job")'],
  [
    'job: bad enum',
    TrajectoryJob,
    job({ evaluator: { func: 'f', conj: 'xor' } }),
    'it.evaluator.conj: must be one of and, or (got "xor")',
  ],
  [
    'job: bad pattern',
    TrajectoryJob,
    job({ job_id: 'a.b' }),
    'it.job_id: must be 1 to 64 characters of A-Z a-z 0-9 _ - (no dots, slashes or spaces) (got "a.b")',
  ],
  [
    'job: an image with a digest',
    TrajectoryJob,
    job({ image: 'debian-desktop@3d2ee79e' }),
    'it.image: must be the name of an image alone, without @digest: runners pin digests with GYMBUS_IMAGES (got "debian-desktop@3d2ee79e")',
  ],
  [
    'job: unknown key',
    TrajectoryJob,
    job({ limits: { steps: 1 } }),
    'it.limits: unknown field "steps"; known are max_steps, setup_s, step_s, evaluate_s, total_s',
  ],
  [
    'job: out of range',
    TrajectoryJob,
    job({ limits: { max_steps: 1_001 } }),
    'it.limits.max_steps: must be at most 1000 (got 1001)',
  ],
  [
    'job: out of range',
    TrajectoryJob,
    job({ limits: { total_s: 0 } }),
    'it.limits.total_s: must be more than 0 (got 0)',
  ],
  [
    'job: beyond whole numbers',
    TrajectoryJob,
    job({ seed: 1e300 }),
    'it.seed: must be at most 9007199254740991 (got 1e+300)',
  ],
  ['job: no integer', TrajectoryJob, job({ seed: 1.5 }), 'it.seed: must be a whole number (got 1.5)'],
  [
    'job: no finite number',
    TrajectoryJob,
    job({ limits: { step_s: Number.POSITIVE_INFINITY } }),
    'it.limits.step_s: must be a number (got Infinity)',
  ],
  [
    'job: too long',
    TrajectoryJob,
    job({ instruction: 'x'.repeat(65_537) }),
    `it.instruction: must have at most 65536 characters, has 65537 (got "${'x'.repeat(76)}...)`,
  ],
  [
    'job: too short',
    TrajectoryJob,
    job({ policy: { name: '' } }),
    'it.policy.name: must have at least 1 character, has 0 (got "")',
  ],
  [
    'job: too many',
    TrajectoryJob,
    job({ setup: new Array(257).fill({ type: 'sleep' }) }),
    `it.setup: must have at most 256 entries, has 257 (got [${'{"type":"sleep"},'.repeat(5).slice(0, 76)}...)`,
  ],
  [
    'job: a rule of ours',
    TrajectoryJob,
    job({ metadata: { s: 'x'.repeat(300_000) } }),
    `it.metadata: must be at most 256 KiB of JSON (got {"s":"${'x'.repeat(71)}...)`,
  ],
  ['action: missing tag', Action, {}, `it.type: is missing, must be one of ${ACTIONS}`],
  ['action: bad tag', Action, { type: 'clik' }, `it.type: must be one of ${ACTIONS} (got "clik")`],
  ['action: wrong type', Action, 5, 'it: must be an object (got 5)'],
  ['action: missing', Action, { type: 'type' }, 'it.text: is missing, must be a text'],
  ['action: no integer', Action, { ...click, x: 1.5 }, 'it.x: must be a whole number (got 1.5)'],
  ['action: NaN', Action, { ...click, x: Number.NaN }, 'it.x: must be a number (got NaN)'],
  [
    'action: bad enum',
    Action,
    { ...click, modifiers: ['hyper'] },
    'it.modifiers.0: must be one of ctrl, alt, shift, super (got "hyper")',
  ],
  [
    'action: unknown key',
    Action,
    { ...click, z: 1 },
    'it: unknown field "z"; known are type, x, y, button, count, modifiers',
  ],
  [
    'action: too short a tuple',
    Action,
    { type: 'drag', path: [[1], [1, 2]] },
    'it.path.0: must have at least 2 entries, has 1 (got [1])',
  ],
  ['policy: missing', policy('scripted'), {}, 'it.actions: is missing, must be a list'],
  [
    'policy: bad tag in a union',
    policy('scripted'),
    { actions: [[click, { type: 'x' }]] },
    `it.actions.0.1.type: must be one of ${ACTIONS} (got "x")`,
  ],
  [
    'policy: unknown key in a union',
    policy('scripted'),
    { actions: [{ ...click, z: 1 }] },
    'it.actions.0: unknown field "z"; known are type, x, y, button, count, modifiers',
  ],
  ['policy: out of range', policy('random'), { steps: 0 }, 'it.steps: must be at least 1 (got 0)'],
  ['set-up: missing in a union', setup('execute'), {}, 'it.command: is missing, must be a text or a list'],
  ['set-up: wrong type', setup('sleep'), { seconds: '1' }, 'it.seconds: must be a number (got "1")'],
  ['set-up: bad flag', setup('launch'), { command: 'x', shell: 'yes' }, 'it.shell: must be true or false (got "yes")'],
  [
    'set-up: what may not be',
    setup('upload_file'),
    { files: [{ path: 'a', local_path: 'b' }] },
    'it.files.0.local_path: a job cannot name files of a host: give content_base64 or s3_key (got "b")',
  ],
  [
    'set-up: bad format',
    setup('upload_file'),
    { files: [{ path: 'a', content_base64: '%' }] },
    'it.files.0.content_base64: must be base64 (got "%")',
  ],
  [
    'set-up: a refinement',
    setup('download'),
    { files: [{ path: 'a' }] },
    'it.files.0: needs one of url and s3_key (got {"path":"a"})',
  ],
  [
    'set-up: unknown key',
    setup('execute'),
    { command: 'x', until: { out: 1 } },
    'it.until: unknown field "out"; known are returncode, stdout, stderr',
  ],
  [
    'set-up: told once',
    setup('execute'),
    { command: '' },
    'it.command: must have at least 1 character, has 0 (got "")',
  ],
  ['getter: missing in a union', getter('vm_file'), {}, 'it.path: is missing, must be a text or a list'],
  [
    'getter: a refinement of what was left out',
    getter('vm_file'),
    { path: ['a'], multi: true, gives: [1] },
    'it.gives: names path 1, counted from 0, which is not there (got [1])',
  ],
  ['metric: missing', rules('exact_match'), {}, 'it.expected: is missing, must be any value of JSON'],
  ['metric: wrong type', rules('file_contains'), { expected: 'a' }, 'it.expected: must be a list (got "a")'],
  ['metric: no options', options('is_utc_0'), { strict: 1 }, 'it: unknown field "strict"; leave it out'],
];

describe('a wrong field is named, with what is allowed and what was received', () => {
  it.each(REFUSED)('%s', (_what, schema, value, line) => {
    expect(linesOf(schema, value)).toEqual([line]);
    expectPlain([line]);
  });

  it('in every kind of issue that there is', () => {
    const codes = REFUSED.flatMap(([, schema, value]) => schema.safeParse(value).error?.issues ?? []);
    expect(new Set(codes.map(({ code }) => code))).toEqual(
      new Set([
        ...['invalid_type', 'invalid_value', 'invalid_format', 'invalid_union', 'unrecognized_keys'],
        ...['too_big', 'too_small', 'custom'],
      ]),
    );
  });

  it.each([
    ['of a list', { setup: new Array(200).fill(0) }, 180],
    ['of a branch of a union', { evaluator: { func: new Array(60).fill(0) } }, 40],
    ['of several', { evaluator: { func: new Array(15).fill(0), result: new Array(15).fill(0) } }, 10],
    ['of what may be any JSON', { metadata: { a: new Array(50_000).fill(Number.NaN) } }, 49_980],
  ])('and of many, %s, the first twenty', (_what, over, more) => {
    const lines = linesOf(TrajectoryJob, job(over));
    expect(lines).toHaveLength(21);
    expect(lines.at(-1)).toBe(`and ${more} more`);
    expectPlain(lines);
  });

  it('and many or long unknown ones are cut', () => {
    const [line] = linesOf(
      TrajectoryJob,
      job(Object.fromEntries(Array.from({ length: 9 }, (_, n) => [`${n}`.repeat(100), 1]))),
    );
    expect(line).toMatch(/^it: unknown field "0{76}\.\.\., .* and 4 more; known are schema, /);
    expectPlain([line ?? '']);
  });
});
