import { describe, expect, it } from 'vitest';
import { type EpisodeEnd, playEpisode } from '../../../runner/job/episode.ts';
import { freshProgress } from '../../../runner/job/progress.ts';
import { policyOf, scene, scripted, typed } from '../../support/desk.ts';

const type = (text: string) => ({ type: 'type', text });
const done = { type: 'done' };

describe('an episode', () => {
  it('is set up, looked at, played step by step and scored', async () => {
    const phases: string[] = [];
    const { desk, notebook, episode } = scene(
      {
        setup: [{ type: 'execute', parameters: { command: 'true' } }],
        policy: scripted(type('hel'), [type('lo'), { type: 'key', key: 'enter' }], { type: 'done', answer: 'written' }),
        evaluator: typed('hello'),
      },
      { onPhase: (phase) => void phases.push(phase) },
    );
    const end = await playEpisode(episode);

    expect(end).toMatchObject({
      steps: 3,
      terminated: true,
      truncated: false,
      stopReason: 'done',
      answer: 'written',
      score: 1,
      metrics: [{ func: 'exact_match', score: 1 }],
    } satisfies Partial<EpisodeEnd>);
    expect(end.lastAction).toEqual({ type: 'done', answer: 'written' });
    expect(Object.keys(end.timingsMs).sort()).toEqual(['evaluate', 'policy', 'setup', 'steps']);
    expect(phases).toEqual(['setup', 'steps', 'evaluate']);
    expect(notebook.events.map(({ kind }) => kind)).toEqual(['setup', 'step', 'step', 'step', 'step', 'evaluating']);
    expect(notebook.setups).toMatchObject([{ phase: 'setup', index: 0, type: 'execute', returncode: 0 }]);
    // step-N is the picture after step N's actions; 0 is the reset observation.
    expect(notebook.pictures).toEqual(['picture: ', 'picture: hel', 'picture: hello', 'picture: hello']);
    expect(notebook.steps.map(({ step, actions, terminated }) => [step, actions.length, terminated])).toEqual([
      [0, 0, false],
      [1, 1, false],
      [2, 2, false],
      [3, 1, true],
    ]);
    expect(notebook.steps[2]).toMatchObject({
      schema: 'gymbus.step.v1',
      attempt: '1-abcdefgh',
      policy: { name: 'scripted', version: '1' },
      maybe_delivered: [],
      rejected: [],
      observation: { screenshot: { key: 'step-2.png', width: 640 }, a11y_tree: null },
      timings_ms: { policy: expect.any(Number), act: expect.any(Number), observe: expect.any(Number) },
    });
    expect(desk.landed).toHaveLength(3);
  });

  it('lets the desktop stand still before a look, but not after a bare done', async () => {
    const { desk, episode } = scene({ policy: scripted(type('a'), done) });
    await playEpisode(episode);
    expect([desk.settles, desk.looks]).toEqual([2, 3]);
  });

  it('ends as policy_exhausted when the policy has nothing more to do', async () => {
    const { episode, notebook } = scene({ policy: scripted(type('hello')), evaluator: typed('hello') });
    expect(await playEpisode(episode)).toMatchObject({
      ...{ steps: 1, terminated: true, truncated: false, stopReason: 'policy_exhausted', score: 1, answer: null },
    });
    expect(notebook.steps).toHaveLength(2);
    const empty = scene({ policy: scripted() });
    expect(await playEpisode(empty.episode)).toMatchObject({
      steps: 0,
      stopReason: 'policy_exhausted',
      lastAction: null,
    });
  });

  it('is truncated by max_steps and still scored', async () => {
    const { episode, notebook } = scene({
      policy: scripted(type('a'), type('b'), type('c')),
      evaluator: typed('ab'),
      limits: { max_steps: 2 },
    });
    expect(await playEpisode(episode)).toMatchObject({
      ...{ steps: 2, terminated: false, truncated: true, stopReason: 'max_steps', score: 1 },
    });
    expect(notebook.steps.map(({ truncated }) => truncated)).toEqual([false, false, true]);
  });

  it('that is done at its last step is terminated, not truncated', async () => {
    const { episode } = scene({ policy: scripted(done), limits: { max_steps: 1 } });
    expect(await playEpisode(episode)).toMatchObject({ terminated: true, truncated: false, stopReason: 'done' });
  });

  it('scores an infeasible task by whether the policy said so, its reason being the answer', async () => {
    const evaluator = { func: 'infeasible' };
    const said = scene({ policy: scripted({ type: 'fail', reason: 'no battery' }), evaluator });
    expect(await playEpisode(said.episode)).toMatchObject({ stopReason: 'fail', score: 1, answer: 'no battery' });
    const tried = scene({ policy: scripted(done), evaluator });
    expect(await playEpisode(tried.episode)).toMatchObject({ stopReason: 'done', score: 0 });
    const gaveUp = scene({ policy: scripted(type('x'), { type: 'fail' }), evaluator: typed('x') });
    expect(await playEpisode(gaveUp.episode)).toMatchObject({ stopReason: 'fail', score: 0 });
  });

  it('has no score without an evaluator', async () => {
    const { episode } = scene();
    const end = await playEpisode(episode);
    expect(end).toMatchObject({ score: null, metrics: [] });
    expect(end.timingsMs).not.toHaveProperty('evaluate');
  });

  it('shows the policy the picture before, or none where the job wants none', async () => {
    const seen: unknown[] = [];
    const look = (screenshot: boolean) => {
      const functions = policyOf(({ step, screenshot: picture, instruction, screen }) => {
        seen.push([step, picture && String(picture), instruction, screen.width]);
        return step === 3 ? null : { actions: [type('a')], thoughts: 'think' };
      });
      return scene({ observation: { screenshot } }, { functions });
    };
    const shown = look(true);
    await playEpisode(shown.episode);
    expect(seen.splice(0)).toEqual([
      [1, 'picture: ', 'Write hello.', 640],
      [2, 'picture: a', 'Write hello.', 640],
      [3, 'picture: aa', 'Write hello.', 640],
    ]);
    expect(shown.notebook.steps[1]).toMatchObject({ thoughts: 'think', policy: { name: 'tested', version: '3' } });
    const blind = look(false);
    await playEpisode(blind.episode);
    expect(seen[0]).toEqual([1, null, 'Write hello.', 640]);
    expect(blind.notebook.pictures).toEqual([]);
    expect(blind.notebook.steps[1]?.observation.screenshot).toBeNull();
  });

  it('records the postconfig apart from the set-up', async () => {
    const postconfig = [{ type: 'sleep', parameters: { seconds: 0 } }];
    const { episode, notebook } = scene({ evaluator: { func: 'infeasible', postconfig } });
    await playEpisode(episode);
    expect(notebook.setups).toMatchObject([{ phase: 'postconfig', index: 0, type: 'sleep' }]);
  });

  it('tells how far it has come, failed or not', async () => {
    const progress = freshProgress();
    const functions = policyOf(({ step }) => {
      if (step === 3) throw new Error('out of ideas');
      return { actions: [type('a')] };
    });
    const { episode } = scene({}, { functions, progress });
    await expect(playEpisode(episode)).rejects.toThrow('step 3: out of ideas');
    expect(progress).toMatchObject({
      phase: 'steps',
      steps: 2,
      timingsMs: { setup: expect.any(Number), steps: expect.any(Number) },
    });
  });
});
