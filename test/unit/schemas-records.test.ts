import { describe, expect, it } from 'vitest';
import {
  Action,
  AttemptHistory,
  attemptFiles,
  BatchRecord,
  busNames,
  consumerName,
  JobEvent,
  Manifest,
  objectKeys,
  Result,
  RunnerStatus,
  Step,
} from '../../schemas/index.ts';
import { sampleResult, sampleStep } from '../support/samples.ts';

const address = { batch: 'night-42', job: 'rename-0007', attempt: '1-k3x9q2mv' };

describe('actions', () => {
  it.each([
    [
      { type: 'click', x: 1, y: 2 },
      { type: 'click', x: 1, y: 2, button: 'left', count: 1, modifiers: [] },
    ],
    [
      { type: 'scroll', x: 1, y: 2, dy: -3 },
      { type: 'scroll', x: 1, y: 2, dx: 0, dy: -3 },
    ],
    [
      {
        type: 'drag',
        path: [
          [1, 2],
          [3, 4],
        ],
      },
      {
        type: 'drag',
        path: [
          [1, 2],
          [3, 4],
        ],
        button: 'left',
      },
    ],
    [
      { type: 'hotkey', keys: ['ctrl', 's'] },
      { type: 'hotkey', keys: ['ctrl', 's'] },
    ],
    [
      { type: 'done', answer: 'yes' },
      { type: 'done', answer: 'yes' },
    ],
    [
      { type: 'fail', reason: 'no such app' },
      { type: 'fail', reason: 'no such app' },
    ],
  ])('%j', (given, whole) => expect(Action.parse(given)).toEqual(whole));

  it.each([
    { type: 'click', x: 1 },
    { type: 'click', x: 1.5, y: 2 },
    { type: 'click', x: 1, y: 2, count: 4 },
    { type: 'click', x: 1, y: 2, clicks: 2 },
    { type: 'click', x: 1, y: 2, button: 'back' },
    { type: 'drag', path: [[1, 2]] },
    { type: 'type', text: '' },
    { type: 'hotkey', keys: [] },
    { type: 'wait', seconds: -1 },
    { type: 'teleport' },
    {},
  ])('refuses %j', (action) => expect(Action.safeParse(action).success).toBe(false));
});

describe('records', () => {
  const records = {
    result: [Result, sampleResult(address)],
    step: [Step, sampleStep(address, 1, { key: 'k', bytes: 3, sha256: 'a'.repeat(64), width: 4, height: 5 })],
    manifest: [
      Manifest,
      {
        schema: 'gymbus.manifest.v1',
        batch_id: address.batch,
        job_id: address.job,
        attempt: address.attempt,
        job_sha256: '0'.repeat(64),
        outcome: sampleResult(address),
        objects: [{ key: 'k', bytes: 3, sha256: 'a'.repeat(64), content_type: 'image/png' }],
        versions: { gymbus: '1' },
        timings_ms: { setup: 1 },
      },
    ],
    event: [
      JobEvent,
      {
        schema: 'gymbus.event.v1',
        kind: 'step',
        batch_id: 'b',
        job_id: 'j',
        attempt: null,
        runner: 'r',
        at: '2026-01-02T03:04:05.678Z',
        data: { step: 3 },
      },
    ],
    attempts: [
      AttemptHistory,
      {
        schema: 'gymbus.attempts.v1',
        job_sha256: '0'.repeat(64),
        fence: 0,
        attempts: [
          {
            attempt: address.attempt,
            runner: 'r',
            started_at: '2026-01-02T03:04:05.678Z',
            ended_at: null,
            class: null,
            message: null,
            replica_lost: false,
          },
        ],
      },
    ],
    batch: [BatchRecord, { schema: 'gymbus.batch.v1', size: 3, paused: true }],
    runner: [
      RunnerStatus,
      {
        schema: 'gymbus.runner.v1',
        runner: 'r',
        version: '1',
        pid: 1,
        state: 'running',
        reason: null,
        accelerator: 'tcg',
        images: [{ name: 'debian-desktop', digest: 'd' }],
        functions: ['policy:scripted'],
        capacity: { acting: 2, ready: 2, bound: 'cpu' },
        replicas: { hot: 2 },
        load: { load1: 0.1, memory_available_bytes: 1, disk_available_bytes: 1, spool_bytes: 0 },
        started_at: '2026-01-02T03:04:05.678Z',
        at: '2026-01-02T03:04:05.678Z',
      },
    ],
  } as const;

  it.each(Object.entries(records))(
    '%s comes out as it went in, with what a later version adds',
    (_, [schema, value]) => {
      const later = { ...value, added_later: { x: 1 } };
      expect(schema.parse(JSON.parse(JSON.stringify(later)))).toEqual(later);
    },
  );

  it.each(Object.entries(records))('%s of another schema is refused', (_, [schema, value]) => {
    expect(schema.safeParse({ ...value, schema: 'gymbus.other.v1' }).success).toBe(false);
  });

  it('a failed job has no score', () => {
    const failed = sampleResult(address, { status: 'failed', valid: false, score: null, reward: null });
    expect(Result.parse(failed).score).toBeNull();
    expect(Result.safeParse({ ...failed, score: 1.5 }).success).toBe(false);
  });

  it.each(['1', '0-abcdefgh', '1-ABCDEFGH', '1-short', '1-abc/defgh', 'x-abcdefgh'])(
    'refuses the attempt id %j',
    (attempt) => {
      expect(Result.safeParse(sampleResult({ ...address, attempt })).success).toBe(false);
    },
  );
});

describe('names', () => {
  it('of objects are as documented', () => {
    expect(objectKeys.attempt('b', 'j', '1-abcdefgh') + attemptFiles.screenshot(7)).toBe(
      'batches/b/jobs/j/attempts/1-abcdefgh/step-0007.png',
    );
    expect(objectKeys.result('b', 'j')).toBe('batches/b/jobs/j/result.json');
    expect(attemptFiles.screenshot(12345)).toBe('step-12345.png');
  });

  it('of subjects are read back as they were made, and nothing else is', () => {
    const names = busNames();
    const job = { image: 'debian-desktop', batch: 'b', job: 'j' };
    expect(names.parseJobSubject(names.jobSubject(job))).toEqual(job);
    expect(names.parseJobSubject(names.queuedSubject(job))).toEqual(job);
    for (const other of [
      'gymbus.jobs.a.b',
      'gymbus.jobs.a.b.c.d',
      'gymbus.results.b.j',
      'x.jobs.a.b.c',
      'gymbus.jobs.a..c',
      '',
    ]) {
      expect(names.parseJobSubject(other), other).toBeNull();
    }
    expect(consumerName('a', 'b')).toBe('a~b');
    expect(() => busNames('a.b')).toThrow(/"a\.b"/);
  });
});
