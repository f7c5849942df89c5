import { rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lastStored } from '../../runner/bus/stored.ts';
import { HEADERS, type JobAddress, type TrajectoryJobInput } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { openGym, publish, type TestGym } from '../support/gym.ts';
import { available } from '../support/requirement.ts';
import { expectSettled, settled } from '../support/settled.ts';

const image = 'debian-desktop';

describe.skipIf(!available('fault'))('what is wrong with a job is told, and nothing is lost', () => {
  let gym: TestGym;
  beforeAll(async () => {
    gym = await openGym();
    await gym.start('bad', { GYMBUS_ACTING: '2' });
  });
  afterAll(() => gym?.[Symbol.asyncDispose]());

  /** The dead letter of a job, once it is there. */
  async function deadLetter(address: JobAddress) {
    const { bus } = gym;
    const read = () => lastStored(bus, bus.names.deadStream, bus.names.deadSubject(address));
    await eventually(async () => (await read()) !== null, 60_000);
    const letter = await read();
    if (letter === null) throw new Error('there was one');
    return letter;
  }

  async function queued(address: JobAddress): Promise<boolean> {
    return (await lastStored(gym.bus, gym.bus.names.jobsStream, gym.bus.names.jobSubject(address))) !== null;
  }

  /** By job id: what its publisher sends instead of the good job of that id. */
  const wrong: Record<string, [send: (good: TrajectoryJobInput) => Uint8Array | object, told: RegExp]> = {
    'not-json': [() => Buffer.from('{"schema": "gymbus.job.v1", '), /^not UTF-8 JSON/],
    'not-utf8': [() => Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]), /^not UTF-8 JSON/],
    nothing: [() => Buffer.alloc(0), /^not UTF-8 JSON/],
    'no-object': [(good) => [good], /must be an object with schema/],
    'wrong-type': [(good) => ({ ...good, instruction: 7 }), /instruction: must be a text \(got 7\)/],
    'wrong-limit': [(good) => ({ ...good, limits: { max_steps: 'x' } }), /limits\.max_steps: .*\(got "x"\)/],
    'unknown-field': [(good) => ({ ...good, colour: 'green' }), /unknown field "colour"/],
    'unknown-policy': [
      (good) => ({ ...good, policy: { name: 'oracle' } }),
      /policy\.name: there is no policy "oracle"/,
    ],
    'unknown-setup': [
      (good) => ({ ...good, setup: [{ type: 'fly' }] }),
      /setup\.0\.type: there is no set-up type "fly"/,
    ],
    'forbidden-host': [
      (good) => ({ ...good, network: { hosts: ['example.org'] } }),
      /network\.hosts\.0: the policy of image debian-desktop does not allow "example\.org", it allows none/,
    ],
    'unknown-metric': [(good) => ({ ...good, evaluator: { func: 'beauty' } }), /there is no metric "beauty"/],
    'other-job': [(good) => ({ ...good, job_id: 'x' }), /job_id is "x" in the body and "other-job" in the subject/],
    'other-batch': [(good) => ({ ...good, batch_id: 'x' }), /batch_id is "x" in the body and "wrong" in the subject/],
    'other-image': [(good) => ({ ...good, image: 'x' }), /image is "x" in the body and "debian-desktop" in the sub/],
    'dotted-body': [(good) => ({ ...good, job_id: 'a.b' }), /job_id: .*\(got "a\.b"\)/],
    'no-version': [(good) => ({ ...good, schema: 'gymbus.job.v0' }), /schema: /],
  };
  const good = (job: string): TrajectoryJobInput => quickJob('wrong', { job_id: job });

  it('each kind: dead at once, with its original bytes and headers kept', async () => {
    const sent = Object.entries(wrong).map(([job, [send, told]]) => {
      const body = send(good(job));
      return { job, told, bytes: body instanceof Uint8Array ? body : Buffer.from(JSON.stringify(body)) };
    });
    await Promise.all(
      sent.map(({ job, bytes }) =>
        publish(gym.bus, { image, batch: 'wrong', job }, bytes, { headers: { 'X-Sender': `of ${job}` } }),
      ),
    );
    const dead = { status: 'dead', valid: false, score: null, attempts: 0, attempt: null, trajectory: null } as const;
    for (const { job, told, bytes } of sent) {
      const { failure } = await expectSettled(gym, good(job), dead);
      expect(failure, job).toMatchObject({ class: 'invalid_job', message: expect.stringMatching(told) });
      const letter = await deadLetter({ image, batch: 'wrong', job });
      expect(Buffer.from(letter.data).equals(bytes), `bytes of ${job}`).toBe(true);
      expect(letter.headers.get('X-Sender')).toBe(`of ${job}`);
      expect(letter.headers.get(HEADERS.class)).toBe('invalid_job');
      expect(letter.headers.get(HEADERS.reason)).toMatch(told);
      expect(letter.headers.get(HEADERS.attempts)).toBe('0');
    }
    expect(gym.events.of('wrong', 'started'), 'no guest was touched').toEqual([]);
  });

  it.each<[string, JobAddress]>([
    ['a slash in the job', { image, batch: 'slashes', job: 'a/b' }],
    ['a slash in the batch', { image, batch: 'sla/shes', job: 'a' }],
    ['a slash in the image', { image: 'debian/desktop', batch: 'slashes', job: 'c' }],
    ['65 characters', { image, batch: 'slashes', job: 'x'.repeat(65) }],
  ])('an id with %s: a dead letter, for no such job can have an outcome', async (_, address) => {
    const body = Buffer.from(JSON.stringify(quickJob(address.batch, { job_id: address.job })));
    await publish(gym.bus, address, body);
    const letter = await deadLetter(address);
    expect(Buffer.from(letter.data).equals(body)).toBe(true);
    expect(letter.headers.get(HEADERS.reason)).toMatch(/subject has no legal (job|batch|image) ".*": ids match/);
    await eventually(async () => !(await queued(address)), 30_000);
  });

  it('a dot in an id makes a subject of no stream: the publisher is told', async () => {
    await expect(publish(gym.bus, { image, batch: 'dots', job: 'a.b' }, Buffer.from('{}'))).rejects.toThrow();
  });

  it('a version this build does not know waits for a runner that does', async () => {
    const job = { ...quickJob('newer'), schema: 'gymbus.job.v1.1', shiny: true };
    const address = { image, batch: 'newer', job: job.job_id };
    await publish(gym.bus, address, Buffer.from(JSON.stringify(job)));
    const { data } = await gym.events.next('newer', 'retrying');
    expect(data).toMatchObject({ reason: 'needs gymbus.job.v1.1' });
    expect(await queued(address)).toBe(true);
  });

  it('an image nobody serves: the job waits, and watch says so', async () => {
    const job = quickJob('unserved', { image: 'win-11' });
    await gym.publish(job);
    const { stdout, exitCode } = await gym.cli('watch', 'unserved', '--once');
    expect(exitCode).toBe(0);
    expect(stdout).toContain('0 done, 0 running, 1 waiting; no live runner serves win-11');
    expect(await queued({ image: 'win-11', batch: 'unserved', job: job.job_id })).toBe(true);
  });

  it('2 MiB: refused by the bus, and submit says how large a job may be and what to do', async () => {
    const filling = (bytes: number) => ({
      setup: [
        {
          type: 'upload_file' as const,
          parameters: { files: [{ path: '/home/user/a', content_base64: 'A'.repeat(bytes) }] },
        },
      ],
    });
    const big = quickJob('big', filling(2 * 2 ** 20));
    await expect(gym.publish(big)).rejects.toThrow(/payload/i);
    const half = quickJob('big', { job_id: 'half', ...filling(600 * 2 ** 10) });
    await expect(gym.publish(half)).rejects.toThrow(/message size exceeds maximum allowed/);
    const file = path.join(os.tmpdir(), `gymbus-big-${process.pid}.jsonl`);
    await writeFile(
      file,
      `${JSON.stringify(big)}\n${JSON.stringify(half)}\n${JSON.stringify(quickJob('big', { job_id: 'fits' }))}\n`,
    );
    try {
      const { stdout, stderr, exitCode } = await gym.cli('submit', file);
      expect(exitCode).toBe(1);
      expect(stdout).toMatch(/1 queued.*2 refused/);
      expect(stderr).toMatch(
        /big\/one: the job is 2,097,\d{3} bytes with its headers, the limit is 524,288 \(512 KiB\); put files under inputs\/<batch>\/ in S3/,
      );
      expect(stderr).toContain('big/half: the job is 61');
    } finally {
      await rm(file);
    }
    await expectSettled(gym, quickJob('big', { job_id: 'fits' }));
  });

  it('submit names the line, the field and the value, and publishes nothing', async () => {
    const file = path.join(os.tmpdir(), `gymbus-wrong-${process.pid}.jsonl`);
    const lines = [
      quickJob('none'),
      quickJob('none', { job_id: 'a/b' }),
      quickJob('none', { policy: { name: 'oracle' } }),
    ];
    await writeFile(file, `${lines.map((line) => JSON.stringify(line)).join('\n')}\nno json\n`);
    try {
      const { stderr, exitCode } = await gym.cli('submit', file);
      expect(exitCode).toBe(2);
      expect(stderr).toContain('nothing was published');
      expect(stderr).toMatch(/:2: job_id: .*\(got "a\/b"\)/);
      expect(stderr).toMatch(/:3: policy\.name: there is no policy "oracle"/);
      expect(stderr).toMatch(/:4: not UTF-8 JSON/);
    } finally {
      await rm(file);
    }
    expect(await queued({ image, batch: 'none', job: 'one' })).toBe(false);
  });

  it('a set-up that fails every time: failed after its attempts, with what the guest said', async () => {
    const job = quickJob('failing', {
      setup: [{ type: 'execute', parameters: { command: ['ls', '/nowhere'], expected_returncodes: [0] } }],
      retry: { max_attempts: 2 },
    });
    await gym.publish(job);
    const result = await expectSettled(gym, job, { status: 'failed', valid: false, score: null, attempts: 2 });
    expect(result.failure).toMatchObject({
      class: 'setup',
      message: expect.stringMatching(/step 0 \(execute\): exit code 2.*nowhere/),
    });
    expect(gym.events.of('failing', 'retrying')).toHaveLength(1);
  });

  it('beside all that, a good job is played', async () => {
    const job = quickJob('good');
    await gym.publish(job);
    await expectSettled(gym, job);
    const { seq } = await settled(gym, job);
    expect(seq).toBeGreaterThan(0);
  });
});
