import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureConsumer } from '../../runner/bus/consumers.ts';
import { pull } from '../../runner/bus/pull.ts';
import { Interrupt } from '../../runner/cli/interrupt.ts';
import { untilStopped } from '../../runner/cli/run-until-stopped.ts';
import { Deliveries } from '../../runner/host/deliveries.ts';
import type { Runner } from '../../runner/host/runner.ts';
import { eventually, pullOne } from '../support/bus-jobs.ts';
import { PictureDesk, reservationOf, TestRunner } from '../support/delivery.ts';
import { ancestors } from '../support/process-tree.ts';
import { sampleStatus } from '../support/samples.ts';
import { startServers, type TestServers } from '../support/servers.ts';

const child = path.resolve(import.meta.dirname, '../support/npm-child.ts');
const GONE = 'told: the npm that started this is gone';

describe('a program that npm started', () => {
  /** @param act on the npm and on the program */
  async function outputAfter(act: (npm: number, program: number) => void): Promise<string[]> {
    // Below a shell, as npx starts a program.
    const call = `"${process.execPath}" --import tsx "${child}"; true`;
    const running = execa('npm', ['exec', '-c', call], { detached: true, reject: false, stdin: 'ignore' });
    const lines: string[] = [];
    for await (const line of running.iterable()) {
      lines.push(line);
      const [, pid] = /^pid (\d+)$/.exec(line) ?? [];
      if (pid === undefined) continue;
      const npm = (await ancestors(Number(pid))).find(({ command }) => command.startsWith('npm exec'));
      // A signal to process 0 would be one to all of these tests.
      if (npm === undefined) throw new Error('npm is not among its ancestors');
      act(npm.pid, Number(pid));
    }
    return lines.slice(1);
  }

  it('hurries when only npm is killed', async () =>
    expect(await outputAfter((npm) => process.kill(npm, 'SIGKILL'))).toEqual(['hurried', GONE]));

  it('hurries when npm ends by the signal that it was sent itself', async () =>
    // As `timeout` sends it: to the whole group, of which npm and its shell end by it.
    expect(await outputAfter((npm) => process.kill(-npm, 'SIGTERM'))).toEqual(['told: interrupted', 'hurried']));
});

describe('who lost its npm', () => {
  let servers: TestServers;
  beforeAll(async () => {
    servers = await startServers();
  });
  afterAll(() => servers?.[Symbol.asyncDispose]());

  /** The part of a runner that drains, with ten minutes to do it in. */
  function draining(deliveries: Deliveries): Runner {
    const hurry = new AbortController();
    return {
      healthPort: 0,
      status: () => sampleStatus({ replicas: { leased: deliveries.running } }),
      failed: new Promise(() => undefined),
      stop: () => deliveries.drain(600_000, hurry.signal),
      hurry: () => hurry.abort(),
    };
  }

  it.each([
    [
      'while it waits',
      async (interrupt: Interrupt, waiting: () => Promise<void>) => {
        const stopped = waiting();
        interrupt.fail('the npm that started this is gone');
        await stopped;
      },
    ],
    [
      'before it waits',
      async (interrupt: Interrupt, waiting: () => Promise<void>) => {
        interrupt.fail('the npm that started this is gone');
        await waiting();
      },
    ],
  ])('gives its jobs back at once: %s', async (when, lose) => {
    const batch = when.replaceAll(' ', '-');
    await using runner = new TestRunner(servers);
    const deliveries = new Deliveries(runner.player);
    const desk = new PictureDesk();
    await runner.publish(batch, {
      setup: [{ type: 'sleep', parameters: { seconds: 500 } }],
      limits: { setup_s: 600, total_s: 900 },
    });
    const message = await pullOne(servers.bus, 30_000, batch);
    const playing = deliveries.play({ message, ackWaitMs: 30_000 }, reservationOf(desk));
    await eventually(() => runner.events.some(({ kind }) => kind === 'setup'));
    using interrupt = new Interrupt();
    const told: number[] = [];
    await lose(interrupt, () => untilStopped(draining(deliveries), interrupt, (jobs) => told.push(jobs)));
    await playing;
    expect(told).toEqual([1]);
    expect(desk.discards).toBe(1);
    // It can be had again at once: nobody has to wait for its lease to run out.
    const { name } = await ensureConsumer(servers.bus, { image: 'debian-desktop', batch });
    const { messages } = await pull(servers.bus, name, 1);
    expect(messages.map(({ deliveries: count }) => count)).toEqual([2]);
    expect(await runner.outcome(batch)).toBeNull();
  });
});
