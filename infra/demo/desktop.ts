import type { ActionInput, Evaluator, SetupStep, TrajectoryJobInput } from '../../schemas/index.ts';

/** Buttons of the panel of the debian-desktop image, 1280 x 720 pixels. */
export const PANEL = {
  fileManager: { x: 78, y: 702 },
  textEditor: { x: 108, y: 702 },
  terminal: { x: 138, y: 702 },
} as const;

/** Icons on the screen fill its left edge from the top, folders first, each kind by name. @param place from 0 */
export const icon = (place: number) => ({ x: 60, y: 36 + 100 * place });

type Point = { x: number; y: number };

export const click = (at: Point): ActionInput => ({ type: 'click', ...at });
export const drag = (from: Point, to: Point): ActionInput => ({
  type: 'drag',
  path: [
    [from.x, from.y],
    [to.x, to.y],
  ],
});
export const key = (name: string): ActionInput => ({ type: 'key', key: name });
export const hotkey = (...keys: string[]): ActionInput => ({ type: 'hotkey', keys });
export const type = (text: string): ActionInput => ({ type: 'type', text });
const wait = (seconds: number): ActionInput => ({ type: 'wait', seconds });
const done: ActionInput = { type: 'done' };

/**
 * An action that starts something slow. A runner takes the picture after a step when the desktop has come to rest, or when its patience is
 * over: each wait after it costs half a second where the desktop is quick, and that patience once more where it is not.
 */
export const slow = (action: ActionInput, waits = 1): ActionInput[] => [
  action,
  ...Array.from({ length: waits }, () => wait(0.2)),
];

/** A policy that plays these actions, each a step, and then ends the episode. */
export function script(...actions: (ActionInput | ActionInput[])[]): TrajectoryJobInput['policy'] {
  // As a publisher writes it: fields that are left out are not there.
  return { name: 'scripted', params: { actions: JSON.parse(JSON.stringify([...actions, done].flat())) } };
}

/** A set-up step that must work. */
export const shell = (command: string, options: { timeout?: number } = {}): SetupStep => ({
  type: 'execute',
  parameters: { command, shell: true, expected_returncodes: [0], ...options },
});

/** What a command prints in the guest must be this, to the last character. */
export const prints = (command: string, expected: string): Evaluator => ({
  ...{ func: 'exact_match', conj: 'and', postconfig: [] },
  result: { type: 'vm_command_line', command, shell: true },
  expected: { type: 'rule', rules: { expected } },
});
