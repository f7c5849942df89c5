import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkJob } from '../../../functions/check-job.ts';
import { OsworldTaskError, osworldTaskToJob } from '../../../functions/osworld/task.ts';
import { TrajectoryJob } from '../../../schemas/index.ts';
import { available, osworldTasks } from '../../support/requirement.ts';

const options = { batchId: 'osworld-1', policy: { name: 'scripted', params: { actions: [] } } };
const task = {
  id: 'bb5e4c0d-f964-439c-97b6-bdb9747de3f4',
  snapshot: 'os',
  instruction: 'Do it.',
  config: [{ type: 'sleep', parameters: { seconds: 1 } }],
  evaluator: { func: 'infeasible' },
  related_apps: ['os'],
  proxy: false,
};

describe('an OSWorld task becomes a job', () => {
  it('with its set-up and evaluator as they are and all else as metadata', () => {
    expect(osworldTaskToJob(task, { ...options, domain: 'os', limits: { max_steps: 50 } })).toEqual({
      schema: 'gymbus.job.v1',
      batch_id: 'osworld-1',
      job_id: task.id,
      image: 'debian-desktop',
      instruction: 'Do it.',
      setup: task.config,
      policy: options.policy,
      evaluator: task.evaluator,
      limits: { max_steps: 50, setup_s: 600, step_s: 60, evaluate_s: 300, total_s: 3_600 },
      metadata: {
        benchmark: 'osworld',
        task_id: task.id,
        domain: 'os',
        snapshot: 'os',
        related_apps: ['os'],
        proxy: false,
      },
    });
    expect(osworldTaskToJob(task, { ...options, jobId: 'other', image: 'ubuntu' })).toMatchObject({
      job_id: 'other',
      image: 'ubuntu',
    });
  });

  it.each([
    [null, /no OSWorld task/],
    [{ ...task, evaluator: undefined }, /evaluator/],
    [{ ...task, id: 'a.b' }, /task a\.b makes no job: job_id/],
    [{ ...task, config: [{ typ: 'x' }] }, /setup\.0/],
    [{ ...task, evaluator: { func: 'x', conj: 'xor' } }, /evaluator\.conj: .*"xor"/],
  ])('or says what keeps it from being one: %j', (wrong, message) => {
    expect(() => osworldTaskToJob(wrong, options)).toThrow(OsworldTaskError);
    expect(() => osworldTaskToJob(wrong, options)).toThrow(message);
  });
});

const here = available('osworld');

describe.skipIf(!here)('the real tasks of OSWorld', () => {
  // What stands in a suite that is left out is looked at all the same: to name the tests in it.
  const files = here
    ? readdirSync(osworldTasks, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.json'))
    : [];
  const read = (name: string) => JSON.parse(readFileSync(path.join(osworldTasks, name), 'utf8'));

  it('are there', () => expect(files.length).toBeGreaterThanOrEqual(170));

  it.each(files)('%s loses no field', (name) => {
    const original = read(name);
    const made = osworldTaskToJob(original, { ...options, domain: path.dirname(name) });
    const { id, instruction, config, evaluator, ...rest } = original;
    expect(made).toMatchObject({ job_id: id, instruction, setup: config, evaluator });
    expect(made.metadata).toEqual({ benchmark: 'osworld', task_id: id, domain: path.dirname(name), ...rest });
    // As a runner reads it after the bus: nothing of the task is dropped or changed there either.
    const received = TrajectoryJob.parse(JSON.parse(JSON.stringify(made)));
    expect(received).toMatchObject(JSON.parse(JSON.stringify(made)));
    // What this version lacks is whole functions, never a parameter of one it has.
    const complaints = checkJob(received).filter((line) => !/there is no (set-up type|getter|metric) "/.test(line));
    expect(complaints).toEqual([]);
  });

  it.each(['e0df059f', 'b6781586', 'a462a795', 'fe41f596', 'a4d98375', 'f9be0997', '3ce045a0', '5812b315'])(
    'os/%s can be played',
    (id) => {
      const name = files.find((file) => file.startsWith(`os/${id}`)) ?? '';
      expect(checkJob(TrajectoryJob.parse(osworldTaskToJob(read(name), options)))).toEqual([]);
    },
  );
});
