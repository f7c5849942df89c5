import { describe, expect, it } from 'vitest';
import { generator } from '../../../functions/policies/generator.ts';
import { builtinFunctions } from '../../../functions/registry.ts';
import { Action } from '../../../schemas/index.ts';
import { contextOf, job, never } from './local-guest.ts';

async function play(name: string, params: unknown, steps: number, seed = 7): Promise<(unknown[] | null)[]> {
  const policy = builtinFunctions.policies.get(name);
  if (!policy) throw new Error(name);
  const of = job({ seed });
  const playing = policy.create(policy.params.parse(params), contextOf(of));
  const answers: (unknown[] | null)[] = [];
  for (let step = 1; step <= steps; step++) {
    const input = { step, instruction: '', screen: { width: 640, height: 360 }, screenshot: null, rejected: [] };
    answers.push((await playing.act(input, never))?.actions ?? null);
  }
  return answers;
}

describe('the scripted policy', () => {
  it('plays an entry a step, filled in with defaults, and then has no more', async () => {
    const actions = [
      { type: 'click', x: 1, y: 2 },
      [
        { type: 'type', text: 'a' },
        { type: 'key', key: 'enter' },
      ],
      { type: 'done' },
    ];
    expect(await play('scripted', { actions }, 4)).toEqual([
      [{ type: 'click', x: 1, y: 2, button: 'left', count: 1, modifiers: [] }],
      actions[1],
      [{ type: 'done' }],
      null,
    ]);
  });
  it('may have nothing to do', async () => expect(await play('scripted', { actions: [] }, 1)).toEqual([null]));
});

describe('the random policy', () => {
  it('draws the same for the same seed, something else for another', async () => {
    const first = await play('random', {}, 50);
    expect(await play('random', {}, 50)).toEqual(first);
    expect(await play('random', {}, 50, 8)).not.toEqual(first);
    expect(await play('random', {}, 50, 7 + 2 ** 40)).not.toEqual(first);
  });
  it('draws legal actions on the screen, of every kind', async () => {
    const actions = (await play('random', {}, 500)).flat().map((action) => Action.parse(action));
    expect(new Set(actions.map(({ type }) => type))).toEqual(
      new Set(['click', 'move', 'drag', 'scroll', 'key', 'type']),
    );
    for (const action of actions) {
      const points = action.type === 'drag' ? action.path : 'x' in action ? [[action.x, action.y] as const] : [];
      for (const [x, y] of points) expect(x >= 0 && y >= 0 && x < 640 && y < 360).toBe(true);
    }
  });
  it('ends after the steps it is given', async () => {
    const answers = await play('random', { steps: 2 }, 3);
    expect(answers.map((answer) => answer === null)).toEqual([false, false, true]);
  });
});

it('the generator reaches both ends of its range and spreads evenly', () => {
  const chance = generator(1);
  const counts = Array.from({ length: 10 }, () => 0);
  for (let draw = 0; draw < 10_000; draw++) {
    const value = chance.between(0, 9);
    counts[value] = (counts[value] ?? 0) + 1;
  }
  for (const count of counts) expect(Math.abs(count - 1_000)).toBeLessThan(150);
});
