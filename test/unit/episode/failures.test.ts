import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { EvaluatorError, type SetupError } from '../../../functions/contract.ts';
import { GuestSilent } from '../../../functions/guest.ts';
import { classify } from '../../../runner/job/classify.ts';
import { playEpisode } from '../../../runner/job/episode.ts';
import { FAILURE_TABLE } from '../../../runner/job/failure.ts';
import { LimitPassed } from '../../../runner/job/limit.ts';
import { PartFailed } from '../../../runner/job/part-failed.ts';
import { ReplicaLost } from '../../../runner/replica/contract.ts';
import { hang, policyOf, scene, scripted, typed, untilTold } from '../../support/desk.ts';

const type = (text: string) => ({ type: 'type', text }) as const;
const done = { type: 'done' } as const;
const failure = (run: Promise<unknown>): Promise<PartFailed> =>
  run.then(
    () => {
      throw new Error('did not fail');
    },
    (error) => error,
  );
const command = (words: string) => ({ type: 'execute', parameters: { command: words } });

describe('a set-up that fails', () => {
  it('is of class setup, with the step, its record and its cause', async () => {
    const { desk, notebook, episode } = scene({ setup: [command('true'), command('stuck'), command('true')] });
    desk.before.exec = async ([program]) => {
      if (program === 'stuck') throw new GuestSilent('no answer in 5 s');
    };
    const error = await failure(playEpisode(episode));
    expect(error).toBeInstanceOf(PartFailed);
    expect(error.part).toBe('setup');
    expect(error.message).toBe('setup: step 1 (execute): no answer in 5 s');
    expect((error.cause as SetupError).cause).toBeInstanceOf(GuestSilent);
    expect(notebook.setups).toMatchObject([{ index: 0 }, { index: 1, error: 'no answer in 5 s' }]);
    expect(notebook.steps).toEqual([]);
    expect(desk.looks).toBe(0);
  });

  it.each([
    ['setup_s', { setup_s: 0.1 }],
    ['total_s', { total_s: 0.1 }],
  ])('by %s names the step it was in, whether or not that heeds its signal', async (name, limits) => {
    for (const stuck of [untilTold, hang]) {
      const { desk, notebook, episode } = scene({ setup: [command('true'), command('stuck')], limits });
      desk.before.exec = async ([program], signal) => {
        if (program === 'stuck') await stuck(signal);
      };
      const began = performance.now();
      const error = await failure(playEpisode(episode));
      expect(error.part).toBe('setup');
      expect(error.cause).toBeInstanceOf(LimitPassed);
      expect(error.message).toBe(
        `setup: step 1 (execute): setup took longer than 0.1 s; raise limits.${name} if that is not enough`,
      );
      expect(performance.now() - began).toBeLessThan(1_500);
      await sleep(50);
      expect(notebook.setups.map(({ index, error: said }) => [index, said !== undefined])).toEqual([
        [0, false],
        [1, true],
      ]);
    }
  });
});

describe('a policy that fails', () => {
  it.each([
    ['no object', 5, /malformed answer/],
    ['undefined', undefined, /malformed answer/],
    ['no actions', { actions: [] }, /actions/],
    ['an unknown action', { actions: [{ type: 'clik' }] }, /actions\.0\.type: .*got "clik"/],
    ['a wrong field', { actions: [{ type: 'click', x: 1.5, y: 2 }] }, /actions\.0\.x: .*got 1.5/],
    ['too many actions', { actions: Array.from({ length: 257 }, () => done) }, /actions/],
    ['thoughts that are no text', { actions: [done], thoughts: 7 }, /thoughts/],
  ])('by answering with %s', async (_, answer, message) => {
    const { desk, episode } = scene({}, { functions: policyOf(() => answer) });
    const error = await failure(playEpisode(episode));
    expect(error.part).toBe('policy');
    expect(error.message).toMatch(message);
    expect(desk.landed).toEqual([]);
  });

  it('fills in the defaults of an answer that leaves them out', async () => {
    const functions = policyOf(({ step }) => (step === 1 ? { actions: [{ type: 'click', x: 1, y: 2 }] } : null));
    const { desk, episode } = scene({}, { functions });
    await playEpisode(episode);
    expect(desk.landed).toEqual([{ type: 'click', x: 1, y: 2, button: 'left', count: 1, modifiers: [] }]);
  });

  it('by throwing or by giving no answer in time', async () => {
    const thrown = new Error('no model');
    const throwing = scene({}, { functions: policyOf(() => Promise.reject(thrown)) });
    expect(await failure(playEpisode(throwing.episode))).toMatchObject({ part: 'policy', cause: thrown });
    for (const stuck of [untilTold, hang]) {
      const { episode } = scene({ limits: { step_s: 0.1 } }, { functions: policyOf((_, signal) => stuck(signal)) });
      const error = await failure(playEpisode(episode));
      expect(error).toMatchObject({ part: 'policy', cause: { name: 'LimitPassed' } });
      expect(error.message).toMatch(/step 1: the answer of the policy took longer than 0.1 s/);
    }
  });
});

describe('the total limit', () => {
  it('passing while the policy thinks truncates, and the end state is scored in the time kept for that', async () => {
    const functions = policyOf(({ step }, signal) => (step === 1 ? { actions: [type('hello')] } : untilTold(signal)));
    const { notebook, episode } = scene({ limits: { total_s: 1.2 }, evaluator: typed('hello') }, { functions });
    expect(await playEpisode(episode)).toMatchObject({
      ...{ steps: 1, terminated: false, truncated: true, stopReason: 'total_s', score: 1, lastAction: type('hello') },
    });
    expect(notebook.steps).toHaveLength(2);
  });

  it('passing while an action is under way ends the episode after the look that tells', async () => {
    const { desk, notebook, episode } = scene({
      policy: scripted(type('a'), [type('b'), type('c')], done),
      limits: { total_s: 1.2 },
      evaluator: typed('a'),
    });
    desk.before.act = async (action, signal) => {
      if (action.type === 'type' && action.text === 'b') await untilTold(signal);
    };
    expect(await playEpisode(episode)).toMatchObject({ steps: 2, truncated: true, stopReason: 'total_s', score: 1 });
    expect(notebook.steps[2]).toMatchObject({ maybe_delivered: [0], rejected: [{ index: 1 }], truncated: true });
  });

  it('passing while the desktop does not come to rest takes its picture as it is, and the end state is scored', async () => {
    const look = { settle: { minMs: 0, maxMs: 600_000 }, pictureMs: 300, tries: 1 };
    const { desk, notebook, episode } = scene(
      { policy: scripted(type('a'), done), limits: { total_s: 1.2 }, evaluator: typed('a') },
      { look },
    );
    desk.before.settle = async (signal) => {
      if (desk.settles === 2) await untilTold(signal);
    };
    expect(await playEpisode(episode)).toMatchObject({ steps: 1, truncated: true, stopReason: 'total_s', score: 1 });
    expect(notebook.pictures[1]).toBe('picture: a');
  });

  it('passing while the end state is looked at fails the evaluator, whatever evaluate_s allows', async () => {
    for (const stuck of [untilTold, hang]) {
      const { desk, episode } = scene({ limits: { total_s: 0.4 }, evaluator: typed('x') });
      desk.before.exec = async (_, signal) => stuck(signal);
      const error = await failure(playEpisode(episode));
      expect(error).toMatchObject({ part: 'evaluator', cause: { name: 'LimitPassed' } });
      expect(error.message).toMatch(/^evaluator: evaluator took longer than 0\.\d+ s; raise limits\.total_s/);
    }
  });
});

describe('a look at the desktop', () => {
  it('that fails is tried again, and the step is none the worse', async () => {
    const retried: unknown[] = [];
    const { desk, notebook, episode } = scene(
      { policy: scripted(type('a'), done) },
      { onReadRetry: (error) => void retried.push(error) },
    );
    desk.before.look = async (look, signal) => {
      if (look === 2) throw new Error('half a picture');
      if (look === 3) await untilTold(signal);
    };
    expect(await playEpisode(episode)).toMatchObject({ steps: 2 });
    expect(notebook.pictures[1]).toBe('picture: a');
    expect(desk.landed).toHaveLength(1);
    expect(retried).toMatchObject([{ message: 'half a picture' }, { name: 'LimitPassed' }]);
  });

  it('that fails three times is of class guest', async () => {
    const { desk, notebook, episode } = scene({ policy: scripted(type('a'), done) });
    desk.before.look = async (look) => {
      if (look > 1) throw new Error('no picture');
    };
    const error = await failure(playEpisode(episode));
    expect(error).toMatchObject({ part: 'guest', message: 'observing: no picture' });
    expect(desk.looks).toBe(4);
    expect(notebook.steps).toHaveLength(1);
  });

  it('waits for no desktop that will not tell whether it stands still', async () => {
    const { desk, episode } = scene({ policy: scripted(type('a'), done) });
    desk.before.settle = hang;
    const error = await failure(playEpisode(episode));
    expect(error).toMatchObject({ part: 'guest', cause: { name: 'LimitPassed' } });
  });
});

describe('an evaluation that fails', () => {
  it('is of class evaluator, and never a score', async () => {
    const { desk, episode } = scene({ evaluator: typed('x') });
    desk.before.exec = () => Promise.reject(new GuestSilent('no answer'));
    const error = await failure(playEpisode(episode));
    expect(error).toMatchObject({ part: 'evaluator', cause: expect.any(EvaluatorError) });
    expect(error.message).toBe('evaluator: result vm_command_line: no answer');
  });

  it('by its limit names the limit, and the step of the postconfig it was in', async () => {
    const slow = scene({ evaluator: typed('x'), limits: { evaluate_s: 0.1 } });
    slow.desk.before.exec = hang;
    expect((await failure(playEpisode(slow.episode))).message).toBe(
      'evaluator: evaluator took longer than 0.1 s; raise limits.evaluate_s if that is not enough',
    );
    const postconfig = [{ type: 'sleep', parameters: { seconds: 60 } }];
    const { episode, notebook } = scene({ evaluator: { func: 'infeasible', postconfig }, limits: { evaluate_s: 0.1 } });
    expect((await failure(playEpisode(episode))).message).toMatch(/^evaluator: step 0 \(sleep\): /);
    expect(notebook.setups).toMatchObject([{ phase: 'postconfig', index: 0, error: expect.any(String) }]);
  });
});

describe('an evaluation of much work', () => {
  it('ends at its limit as one of class evaluator, and holds no other episode up', async () => {
    const file = Buffer.alloc(64 * 2 ** 20, 'a');
    const slow = scene({
      evaluator: {
        func: 'file_contains',
        result: { type: 'vm_file', path: '/a' },
        expected: {
          type: 'rule',
          rules: { expected: Array.from({ length: 1_000 }, (_, n) => `${'a'.repeat(n % 60)}b`) },
        },
      },
      limits: { evaluate_s: 0.1 },
    });
    slow.desk.guest.readFile = async () => file;
    const sound = scene({ policy: scripted(type('a'), done), evaluator: typed('a') });
    const [error, end] = await Promise.all([failure(playEpisode(slow.episode)), playEpisode(sound.episode)]);
    expect(end.score).toBe(1);
    expect(error).toMatchObject({ part: 'evaluator', cause: { name: 'LimitPassed' } });
    const { class: failureClass } = classify(error);
    expect(failureClass).toBe('evaluator');
    // It is this job's own: it costs it an attempt, and never the machine.
    expect(FAILURE_TABLE[failureClass]).toEqual({ spends: true, next: 'retry' });
  });
});

describe('the machine is lost', () => {
  const lost = new ReplicaLost('qemu exited with signal SIGKILL');

  it.each(['exec', 'act', 'look'] as const)('during %s: class guest, its cause the loss', async (where) => {
    for (const stuck of [untilTold, hang]) {
      const { desk, episode } = scene({ setup: [command('true')], policy: scripted(type('a'), done) });
      desk.before[where] = async (_: unknown, signal: AbortSignal) => {
        setTimeout(() => desk.die(lost), 30);
        await stuck(signal);
      };
      const error = await failure(playEpisode(episode));
      expect(error).toMatchObject({ part: 'guest', cause: lost });
      expect(error.message).toMatch(/^the replica was lost during (setup|steps): qemu exited with signal SIGKILL$/);
    }
  });

  it('during evaluation: class guest, not evaluator', async () => {
    const { desk, episode } = scene({ evaluator: typed('x') });
    desk.before.exec = async () => {
      desk.die(lost);
      await hang();
    };
    expect(await failure(playEpisode(episode))).toMatchObject({ part: 'guest', cause: lost });
  });

  it('while the policy thinks: known at once', async () => {
    const { desk, episode } = scene({}, { functions: policyOf(hang) });
    setTimeout(() => desk.die(lost), 50);
    const began = performance.now();
    expect(await failure(playEpisode(episode))).toMatchObject({ part: 'guest', cause: lost });
    expect(performance.now() - began).toBeLessThan(1_000);
  });

  it('and a call sees it first: the loss is still the cause', async () => {
    const { desk, episode } = scene({ setup: [command('true')] });
    desk.before.exec = async () => {
      setTimeout(() => desk.die(lost), 100);
      throw new GuestSilent('channel closed');
    };
    expect(await failure(playEpisode(episode))).toMatchObject({ part: 'guest', cause: lost });
  });

  it('before anything began', async () => {
    const { desk, episode, notebook } = scene();
    desk.die(lost);
    expect(await failure(playEpisode(episode))).toMatchObject({ part: 'guest', cause: lost });
    expect(notebook.events).toEqual([]);
  });
});

describe('the runner ends it', () => {
  const leaseLost = new Error('lease lost');

  it.each(['exec', 'act', 'look', 'settle'] as const)(
    'during %s: its own reason comes out, and nothing more is done',
    async (where) => {
      for (const stuck of [untilTold, hang]) {
        const { desk, stop, episode } = scene({
          setup: [command('true')],
          policy: scripted(type('a'), type('b'), done),
        });
        desk.before[where] = async (...given: unknown[]) => {
          setTimeout(() => stop.abort(leaseLost), 30);
          await stuck(given.at(-1) as AbortSignal);
        };
        expect(await failure(playEpisode(episode))).toBe(leaseLost);
        const { looks } = desk;
        await sleep(50);
        expect(desk.landed).toEqual([]);
        expect(desk.looks).toBe(looks);
      }
    },
  );

  it('during a wait', async () => {
    const { stop, episode } = scene({ policy: scripted({ type: 'wait', seconds: 20 }) });
    setTimeout(() => stop.abort(leaseLost), 50);
    expect(await failure(playEpisode(episode))).toBe(leaseLost);
  });

  it('first cause wins over what follows from it, either way round', async () => {
    const lost = new ReplicaLost('gone');
    const first = scene({}, { functions: policyOf(hang) });
    setTimeout(() => {
      first.stop.abort(leaseLost);
      first.desk.die(lost);
    }, 20);
    expect(await failure(playEpisode(first.episode))).toBe(leaseLost);
    const second = scene({}, { functions: policyOf(hang) });
    setTimeout(() => {
      second.desk.die(lost);
      second.stop.abort(leaseLost);
    }, 20);
    expect(await failure(playEpisode(second.episode))).toMatchObject({ part: 'guest', cause: lost });
  });

  it('before anything began', async () => {
    const { stop, desk, episode } = scene({ setup: [command('true')] });
    stop.abort(leaseLost);
    expect(await failure(playEpisode(episode))).toBe(leaseLost);
    expect(desk.looks).toBe(0);
  });

  it('leaves no listener on a signal that outlives the episode', async () => {
    const { stop, desk, episode } = scene({ policy: scripted(type('a'), done), evaluator: typed('a') });
    await playEpisode(episode);
    expect(EventEmitter.getEventListeners(stop.signal, 'abort')).toHaveLength(0);
    expect(EventEmitter.getEventListeners(desk.lost, 'abort')).toHaveLength(0);
  });
});

describe('the recorder fails', () => {
  const full = new Error('no room on disk');

  it('in a step: its own error comes out', async () => {
    const { notebook, episode } = scene({ policy: scripted(type('a'), done) });
    notebook.step = () => Promise.reject(full);
    expect(await failure(playEpisode(episode))).toBe(full);
    notebook.screenshot = () => Promise.reject(full);
    expect(await failure(playEpisode(episode))).toBe(full);
  });

  it('in the set-up: its error is the cause', async () => {
    const { notebook, episode } = scene({ setup: [command('true')] });
    notebook.setup = () => Promise.reject(full);
    expect(await failure(playEpisode(episode))).toMatchObject({ part: 'setup', cause: full });
  });
});
