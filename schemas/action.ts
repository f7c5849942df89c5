import { z } from 'zod';

/** Pixels of the screenshot; (0, 0) is its top left corner. Whether a point lies on the screen is known only to the replica. */
const Pixel = z.number().int();
const Button = z.enum(['left', 'right', 'middle']);
export type Button = z.infer<typeof Button>;
const Modifier = z.enum(['ctrl', 'alt', 'shift', 'super']);
/** A key by its name (`enter`, `f5`, `page_down`; which there are is the keyboard's affair) or the one character it types. */
const Key = z.string().min(1).max(32);

const at = { x: Pixel, y: Pixel };

export const Click = z.strictObject({
  type: z.literal('click'),
  ...at,
  button: Button.default('left'),
  count: z.number().int().min(1).max(3).default(1),
  modifiers: z.array(Modifier).max(4).default([]),
});
const Move = z.strictObject({ type: z.literal('move'), ...at });
const MouseDown = z.strictObject({ type: z.literal('mouse_down'), ...at, button: Button.default('left') });
const MouseUp = z.strictObject({ type: z.literal('mouse_up'), ...at, button: Button.default('left') });
const Drag = z.strictObject({
  type: z.literal('drag'),
  path: z
    .array(z.tuple([Pixel, Pixel]))
    .min(2)
    .max(256),
  button: Button.default('left'),
});
/** `dx`, `dy` in wheel notches; dy > 0 scrolls down, dx > 0 to the right. */
const Scroll = z.strictObject({
  type: z.literal('scroll'),
  ...at,
  dx: z.number().int().min(-100).max(100).default(0),
  dy: z.number().int().min(-100).max(100).default(0),
});
const Type = z.strictObject({ type: z.literal('type'), text: z.string().min(1).max(16_384) });
const KeyPress = z.strictObject({ type: z.literal('key'), key: Key });
const KeyDown = z.strictObject({ type: z.literal('key_down'), key: Key });
const KeyUp = z.strictObject({ type: z.literal('key_up'), key: Key });
const Hotkey = z.strictObject({ type: z.literal('hotkey'), keys: z.array(Key).min(1).max(8) });
const Wait = z.strictObject({ type: z.literal('wait'), seconds: z.number().min(0).max(600) });
const Done = z.strictObject({ type: z.literal('done'), answer: z.string().max(65_536).optional() });
const Fail = z.strictObject({ type: z.literal('fail'), reason: z.string().max(65_536).optional() });

/** One thing a policy does. `done` and `fail` end the episode. */
export const Action = z.discriminatedUnion('type', [
  Click,
  Move,
  MouseDown,
  MouseUp,
  Drag,
  Scroll,
  Type,
  KeyPress,
  KeyDown,
  KeyUp,
  Hotkey,
  Wait,
  Done,
  Fail,
]);
export type Action = z.infer<typeof Action>;
/** An action as a publisher may write it, defaults left out. */
export type ActionInput = z.input<typeof Action>;
/** The actions that reach the guest's mouse or keyboard. */
export type InputAction = Exclude<Action, { type: 'wait' | 'done' | 'fail' }>;
