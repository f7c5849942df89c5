import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { lastStored } from '../../runner/bus/stored.ts';
import { HEADERS, type JobEvent } from '../../schemas/index.ts';
import { eventually } from '../support/bus-jobs.ts';
import { quickJob, slowJob } from '../support/fault-jobs.ts';
import { addressOf, openGym, type TestGym } from '../support/gym.ts';
import { holdFile } from '../support/held-file.ts';
import { available } from '../support/requirement.ts';
import type { RunnerProcess } from '../support/runner-process.ts';
import { attemptEnds, expectSettled, expectWhole } from '../support/settled.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';

/** How long a silent runner's job is still its own: short, for the test's sake. */
const ACK_WAIT_MS = 5_000;

describe.skipIf(!available('fault'))('a holder that is lost', () => {
  let gym: TestGym;
  let network: TcpProxy;
  /** Its way to the bus leads over `network`. */
  let first: RunnerProcess;
  let second: RunnerProcess;

  beforeAll(async () => {
    gym = await openGym();
    network = await startTcpProxy(gym.nats.port);
    [first, second] = await Promise.all([
      gym.start('first', { NATS_URL: `nats://127.0.0.1:${network.port}` }),
      gym.start('second'),
    ]);
  });
  beforeEach(() => Object.assign(network, { up: 'pass', down: 'pass', onUp: () => undefined }));
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    await network?.[Symbol.asyncDispose]();
  });

  const runnerOf = (event: JobEvent): RunnerProcess => (event.runner === first.id ? first : second);

  async function killMachine(started: JobEvent): Promise<void> {
    const machine = (await runnerOf(started).machines()).find(({ uuid }) => uuid === started.data.replica);
    if (!machine) throw new Error('the attempt has no machine');
    process.kill(machine.pid, 'SIGKILL');
  }

  it('QEMU killed in a step: played again on another machine, one outcome', async () => {
    const job = slowJob('qemu-killed');
    await gym.publish(job);
    await gym.events.next('qemu-killed', 'step', { n: 2 });
    const [started] = gym.events.of('qemu-killed', 'started');
    if (!started) throw new Error('no attempt');
    await killMachine(started);
    await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 2 });
    expect(await attemptEnds(gym, job)).toEqual(['guest', 'played']);
    expect(gym.events.of('qemu-killed', 'retrying')[0]?.data).toMatchObject({
      class: 'guest',
      message: expect.stringContaining('qemu exited with signal SIGKILL'),
    });
    // What the lost attempt recorded is kept, with what was left to look at.
    const { objects, outcome } = await expectWhole(gym, job, started.attempt ?? '');
    expect(outcome).toMatchObject({ status: 'failed', valid: false, score: null, failure: { class: 'guest' } });
    const names = objects.map(({ key }) => key.split('/').at(-1));
    expect(names).toEqual(expect.arrayContaining(['step-0000.png', 'trajectory.jsonl', 'serial.log', 'runner.log']));
  });

  it('QEMU killed in every attempt: dead as poison, with its history, its bytes and its headers', async () => {
    await using file = await holdFile();
    const job = quickJob('poison', { setup: [file.step], retry: { max_attempts: 2 } });
    await gym.publish(job, { headers: { 'X-Sender': 'me' } });
    for (const n of [1, 2]) {
      const started = await gym.events.next('poison', 'started', { n });
      await file.asked(n);
      await killMachine(started);
    }
    const { failure } = await expectSettled(gym, job, { status: 'dead', valid: false, score: null, attempts: 2 });
    const told = gym.events.of('poison', 'started').map(({ attempt, runner }) => `${attempt} on ${runner}: `);
    expect(failure?.class).toBe('poison');
    for (const each of told) expect(failure?.message).toContain(each);
    expect(failure?.message).toContain('qemu exited with signal SIGKILL');
    const letter = await lastStored(gym.bus, gym.bus.names.deadStream, gym.bus.names.deadSubject(addressOf(job)));
    expect(JSON.parse(Buffer.from(letter?.data ?? []).toString())).toEqual(job);
    expect(letter?.headers.get('X-Sender')).toBe('me');
    expect(letter?.headers.get(HEADERS.class)).toBe('poison');
    expect(letter?.headers.get(HEADERS.attempts)).toBe('2');
    expect(letter?.headers.get(HEADERS.reason)).toBe(failure?.message);
  });

  /** Has `first` take a job, by keeping the other from looking. */
  async function takenByFirst(job: ReturnType<typeof quickJob>): Promise<JobEvent> {
    await gym.leaseOf(job.batch_id, ACK_WAIT_MS);
    second.freeze();
    await gym.publish(job);
    const started = await gym.events.next(job.batch_id, 'started');
    expect(started.runner).toBe(first.id);
    return started;
  }

  it('frozen in an episode, awake when its job was played elsewhere: it stops by itself, one outcome', async () => {
    const job = slowJob('frozen');
    await takenByFirst(job);
    await gym.events.next('frozen', 'step', { n: 2 });
    first.freeze();
    second.thaw();
    const { runner, attempt } = await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 2 });
    expect(runner).toBe(second.id);
    first.thaw();
    expect(await first.logged('job', { batch: 'frozen' })).toMatchObject({ end: 'lost', class: 'host' });
    expect((await expectSettled(gym, job)).attempt).toBe(attempt);
    // It played no further than where it was.
    const steps = gym.events.of('frozen', 'step').filter((event) => event.runner === first.id);
    expect(steps.length).toBeLessThanOrEqual(3);
  });

  it('its commit on the way for so long that the job was played elsewhere: refused, one outcome', async () => {
    const job = quickJob('late-commit');
    const since = first.lines.length;
    const committing = new Promise<void>((resolve) => {
      network.onUp = (bytes) => {
        if (!bytes.includes('PUB gymbus.results.late-commit.')) return;
        network.up = 'hold';
        resolve();
      };
    });
    const started = await takenByFirst(job);
    await committing;
    first.freeze();
    second.thaw();
    const { runner, attempt } = await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 2 });
    expect(runner).toBe(second.id);
    network.onUp = () => undefined;
    network.up = 'pass';
    network.flush();
    first.thaw();
    expect(await first.logged('commit refused: another outcome was first', { since })).toMatchObject({
      ...{ batch: 'late-commit', attempt: started.attempt, standing: attempt },
    });
    expect(await first.logged('job', { batch: 'late-commit' })).toMatchObject({ attempt });
    expect((await expectSettled(gym, job)).attempt).toBe(attempt);
    expect(gym.events.of('late-commit', 'committed')).toHaveLength(1);
  });

  it('cut off from the bus for longer than its lease: it gives up, and takes jobs again when it is back', async () => {
    await using file = await holdFile();
    const job = quickJob('cut-off', { setup: [file.step] });
    await takenByFirst(job);
    await file.asked();
    Object.assign(network, { up: 'drop', down: 'drop' });
    second.thaw();
    await gym.events.next('cut-off', 'started', { n: 2 });
    await first.logged('job', { batch: 'cut-off', withinMs: 4 * ACK_WAIT_MS });
    Object.assign(network, { up: 'pass', down: 'pass' });
    network.cut();
    file.release();
    await expectSettled(gym, job, { status: 'completed', score: 1, attempts: 2, runner: second.id });
    // Connected again, it takes jobs again.
    second.freeze();
    const next = quickJob('cut-off', { job_id: 'next' });
    await gym.publish(next);
    await expectSettled(gym, next, { status: 'completed', score: 1, runner: first.id });
    second.thaw();
  });

  it('both stop clean', async () => {
    await Promise.all([first.stop(), second.stop()]);
    await eventually(async () => [...(await first.machines()), ...(await second.machines())].length === 0);
  });
});
