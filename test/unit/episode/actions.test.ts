import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../runner/job/clock.ts';
import { playEpisode } from '../../../runner/job/episode.ts';
import { perform } from '../../../runner/job/perform.ts';
import { ActionRejected, MaybeDelivered } from '../../../runner/replica/contract.ts';
import type { Action } from '../../../schemas/index.ts';
import { Desk, hang, policyOf, scene, scripted, untilTold } from '../../support/desk.ts';

const type = (text: string) => ({ type: 'type', text }) as const;
const done = { type: 'done' } as const;

describe('what becomes of an action', () => {
  it('that may have landed: noted, never repeated, and the episode goes on', async () => {
    const { desk, notebook, episode } = scene({ policy: scripted([type('a'), type('b'), type('c')], done) });
    desk.before.act = async (action) => {
      if (action.type !== 'type' || action.text !== 'b') return;
      desk.text += 'b';
      throw new MaybeDelivered('the acknowledgement was lost');
    };
    expect(await playEpisode(episode)).toMatchObject({ steps: 2, stopReason: 'done' });
    expect(notebook.steps[1]).toMatchObject({ maybe_delivered: [1], rejected: [] });
    expect(notebook.pictures[1]).toBe('picture: abc');
  });

  it("that is still under way when the step's time is over: noted as one that may have landed", async () => {
    for (const stuck of [untilTold, hang]) {
      const { desk, notebook, episode } = scene({
        policy: scripted([type('a'), type('b')], done),
        limits: { step_s: 0.1 },
      });
      desk.before.act = async (action, signal) => {
        if (action.type === 'type' && action.text === 'a') await stuck(signal);
      };
      expect(await playEpisode(episode)).toMatchObject({ steps: 2, stopReason: 'done' });
      expect(notebook.steps[1]).toMatchObject({
        maybe_delivered: [0],
        rejected: [{ index: 1, message: expect.stringContaining('raise limits.step_s') }],
      });
      expect(desk.landed).toEqual([]);
    }
  });

  it('that the replica rejects: not sent, and the policy is told', async () => {
    const told: unknown[] = [];
    const functions = policyOf(({ step, rejected }) => {
      told.push(rejected);
      return step === 3 ? null : { actions: [type('a'), { type: 'key', key: step === 1 ? 'hyper' : 'a' }] };
    });
    const { desk, notebook, episode } = scene({}, { functions });
    desk.before.act = async (action) => {
      if (action.type === 'key' && action.key === 'hyper') throw new ActionRejected('there is no key "hyper"');
    };
    await playEpisode(episode);
    const rejected = [{ index: 1, message: 'there is no key "hyper"' }];
    expect(notebook.steps[1]?.rejected).toEqual(rejected);
    expect(told).toEqual([[], rejected, []]);
  });

  it.each([
    [{ type: 'click', x: 640, y: 10 }, '(640, 10) is outside the screen of 640 x 360 pixels'],
    [{ type: 'move', x: -1, y: 0 }, '(-1, 0) is outside'],
    [{ type: 'scroll', x: 0, y: 360, dy: 1 }, '(0, 360) is outside'],
    [
      {
        type: 'drag',
        path: [
          [1, 1],
          [639, 359],
          [1, 999],
        ],
      },
      '(1, 999) is outside',
    ],
  ])('%j points off the screen: not sent', async (action, message) => {
    const { desk, notebook, episode } = scene({ policy: scripted(action, done) });
    await playEpisode(episode);
    expect(notebook.steps[1]?.rejected).toEqual([{ index: 0, message: expect.stringContaining(message) }]);
    expect(desk.landed).toEqual([]);
  });

  it('after a done or fail of the same answer: not sent', async () => {
    for (const ending of [done, { type: 'fail' }]) {
      const { desk, notebook, episode } = scene({ policy: scripted([type('a'), ending, type('b'), done]) });
      expect(await playEpisode(episode)).toMatchObject({ steps: 1, stopReason: ending.type, lastAction: ending });
      expect(notebook.steps[1]?.rejected.map(({ index }) => index)).toEqual([2, 3]);
      expect(notebook.steps[1]?.actions).toHaveLength(4);
      expect(desk.text).toBe('a');
    }
  });

  it('waits as it is told, unless that does not fit in the step', async () => {
    const { notebook, episode } = scene({
      policy: scripted([{ type: 'wait', seconds: 0.15 }, { type: 'wait', seconds: 3 }, type('a')], done),
      limits: { step_s: 2 },
    });
    await playEpisode(episode);
    expect(notebook.steps[1]?.timings_ms.act).toBeGreaterThanOrEqual(149);
    expect(notebook.steps[1]?.timings_ms.act).toBeLessThan(1_500);
    expect(notebook.steps[1]?.rejected).toEqual([{ index: 1, message: expect.stringContaining('does not fit') }]);
  });

  it('no action is ever sent twice, out of order, or after the end, whatever the replica answers', async () => {
    const answer = fc.constantFrom('lands', 'rejected', 'maybe', 'maybe landed');
    const action = fc.oneof(
      fc.constant<Action>({ type: 'done' }),
      fc.integer({ min: -50, max: 700 }).map((x): Action => ({ type: 'move', x, y: 5 })),
      fc.constant<Action>({ type: 'key', key: 'a' }),
    );
    const signal = new AbortController().signal;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(action, answer), { minLength: 1, maxLength: 8 }), async (plan) => {
        const desk = new Desk();
        const sent: Action[] = [];
        const actions = plan.map(([one]) => ({ ...one }));
        desk.before.act = async (one) => {
          sent.push(one);
          const how = plan[actions.indexOf(one)]?.[1];
          if (how === 'rejected') throw new ActionRejected('no');
          if (how?.startsWith('maybe')) throw new MaybeDelivered('perhaps');
        };
        const limits = {
          clock: systemClock,
          deadlineMs: systemClock.monotonicMs() + 10_000,
          screen: desk.guest.screen,
        };
        const got = await perform(actions, desk, limits, signal);
        const places = sent.map((one) => actions.indexOf(one as (typeof actions)[number]));
        expect(places).toEqual([...new Set(places)].sort((a, b) => a - b));
        const end = actions.findIndex((one) => one.type === 'done');
        if (end >= 0) expect(places.every((place) => place < end)).toBe(true);
        // Each action has exactly one fate.
        const fates = new Set([...got.maybeDelivered, ...got.rejected.map(({ index }) => index)]);
        expect(fates.size).toBe(got.maybeDelivered.length + got.rejected.length);
        expect(fates.size + desk.landed.length + (end >= 0 ? 1 : 0)).toBe(actions.length);
      }),
    );
  });
});
