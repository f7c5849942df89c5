import { randomBytes } from 'node:crypto';
import { crc32, deflateSync } from 'node:zlib';
import type { Result, RunnerStatus, Step, TrajectoryJobInput } from '../../schemas/index.ts';

/** The least a publisher has to say, and everything it may. */
export function sampleJob(over: Partial<TrajectoryJobInput> = {}): TrajectoryJobInput {
  return {
    schema: 'gymbus.job.v1',
    batch_id: 'night-42',
    job_id: 'rename-0007',
    image: 'debian-desktop',
    instruction: 'Rename the folder todo to done.',
    policy: { name: 'scripted' },
    ...over,
  };
}

/** A new attempt id. */
export function sampleAttempt(n = 1): string {
  return `${n}-${randomBytes(5).toString('hex')}`;
}

export function sampleResult(
  address: { batch: string; job: string; attempt: string },
  over: Partial<Result> = {},
): Result {
  return {
    schema: 'gymbus.result.v1',
    batch_id: address.batch,
    job_id: address.job,
    job_sha256: '0'.repeat(64),
    attempt: address.attempt,
    attempts: 1,
    status: 'completed',
    valid: true,
    score: 1,
    reward: 1,
    terminated: true,
    truncated: false,
    stop_reason: 'done',
    steps: 1,
    failure: null,
    trajectory: null,
    runner: 'host-a',
    image_digest: null,
    accelerator: 'simulated',
    answer: null,
    metadata: {},
    started_at: '2026-01-02T03:04:05.678Z',
    finished_at: '2026-01-02T03:04:06.678Z',
    timings_ms: { setup: 210 },
    ...over,
  };
}

/** A live runner's heartbeat. */
export function sampleStatus(over: Partial<RunnerStatus> = {}): RunnerStatus {
  return {
    schema: 'gymbus.runner.v1',
    runner: 'host-a',
    version: '0.1.0',
    pid: 1,
    state: 'running',
    reason: null,
    accelerator: 'simulated',
    images: [{ name: 'debian-desktop', digest: 'd'.repeat(64) }],
    functions: [],
    capacity: { acting: 1, ready: 1, bound: 'cpu' },
    replicas: {},
    load: { load1: 0, memory_available_bytes: 0, disk_available_bytes: 0, spool_bytes: 0 },
    started_at: '2026-01-02T03:04:05.678Z',
    at: '2026-01-02T03:04:05.678Z',
    ...over,
  };
}

export function sampleStep(
  address: { batch: string; job: string; attempt: string },
  step: number,
  screenshot: Step['observation']['screenshot'],
): Step {
  return {
    schema: 'gymbus.step.v1',
    batch_id: address.batch,
    job_id: address.job,
    attempt: address.attempt,
    step,
    actions: step === 0 ? [] : [{ type: 'click', x: 3, y: 4, button: 'left', count: 1, modifiers: [] }],
    thoughts: null,
    policy: { name: 'scripted', version: '1' },
    maybe_delivered: [],
    rejected: [],
    observation: { taken_at: '2026-01-02T03:04:05.678Z', screenshot, a11y_tree: null },
    started_at: '2026-01-02T03:04:05.678Z',
    timings_ms: { policy: 1 },
    terminated: false,
    truncated: false,
  };
}

/** A real PNG of random grey pixels, about `width * height` bytes, for noise does not compress. */
export function samplePng(width = 64, height = 48): Buffer {
  const rows = Buffer.alloc((width + 1) * height);
  for (let y = 0; y < height; y++) randomBytes(width).copy(rows, y * (width + 1) + 1);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 0, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from('89504e470d0a1a0a', 'hex'),
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(rows, { level: 0 })),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const framed = Buffer.alloc(data.byteLength + 12);
  framed.writeUInt32BE(data.byteLength, 0);
  framed.write(type, 4, 'latin1');
  data.copy(framed, 8);
  framed.writeUInt32BE(crc32(framed.subarray(4, 8 + data.byteLength)), 8 + data.byteLength);
  return framed;
}
