import { z } from 'zod';
import type { Action } from '../../schemas/index.ts';
import type { PolicyFunction } from '../contract.ts';
import type { ScreenSize } from '../guest.ts';
import { type Generator, generator } from './generator.ts';

const Params = z.strictObject({
  steps: z.number().int().min(1).max(1_000).optional().describe('Answers to give; without it, until a limit ends it'),
});

/** Keys that do little on their own: none closes the session or the machine. */
const KEYS = ['enter', 'escape', 'tab', 'up', 'down', 'left', 'right', 'backspace', 'space', 'home', 'end'] as const;
const WORDS = ['hello', 'notes', 'todo', 'Report 7', 'a, b; c!'] as const;

type Draw = (chance: Generator, screen: ScreenSize) => Action;
const DRAWS: readonly [Draw, ...Draw[]] = [
  (chance, screen) => ({
    type: 'click',
    ...point(chance, screen),
    button: chance.pick(['left', 'left', 'left', 'right']),
    count: chance.pick([1, 1, 2]),
    modifiers: [],
  }),
  (chance, screen) => ({ type: 'move', ...point(chance, screen) }),
  (chance, screen) => {
    const ends = [point(chance, screen), point(chance, screen)];
    return { type: 'drag', path: ends.map(({ x, y }): [number, number] => [x, y]), button: 'left' };
  },
  (chance, screen) => ({ type: 'scroll', ...point(chance, screen), dx: 0, dy: chance.pick([-3, -1, 1, 3]) }),
  (chance) => ({ type: 'key', key: chance.pick(KEYS) }),
  (chance) => ({ type: 'type', text: chance.pick(WORDS) }),
];

function point(chance: Generator, { width, height }: ScreenSize): { x: number; y: number } {
  return { x: chance.between(0, width - 1), y: chance.between(0, height - 1) };
}

export const random: PolicyFunction<z.infer<typeof Params>> = {
  name: 'random',
  version: '1',
  summary: "Mouse and keyboard by chance, repeatable by the job's seed",
  params: Params,
  create({ steps }, { job }) {
    const chance = generator(job.seed);
    return {
      async act({ step, screen }) {
        if (steps !== undefined && step > steps) return null;
        return { actions: [chance.pick(DRAWS)(chance, screen)] };
      },
    };
  },
};
