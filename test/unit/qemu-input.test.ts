import { describe, expect, it } from 'vitest';
import { ActionRejected, MaybeDelivered } from '../../runner/qemu/errors.ts';
import { InputDevices, type InputPort } from '../../runner/qemu/input.ts';
import type { InputEvent } from '../../runner/qemu/input-events.ts';
import { Action, type ActionInput, type InputAction } from '../../schemas/index.ts';

const screen = { width: 1280, height: 720 };
const never = new AbortController().signal;

/** Writes down what reaches the guest, one word an event, `|` for a barrier. */
function recorder(fault?: (word: string, count: number) => Error | null): { port: InputPort; words: string[] } {
  const words: string[] = [];
  const add = async (word: string): Promise<void> => {
    words.push(word);
    const error = fault?.(word, words.length);
    if (error) throw error;
  };
  return {
    words,
    port: {
      send: (events) => add(events.map(say).join('+')),
      barrier: () => add('|'),
      typeText: (text) => add(`text:${text}`),
      rest: () => add('rest'),
      scrollSideways: (notches) => add(`sideways:${notches}`),
    },
  };
}

function say(event: InputEvent): string {
  if (event.type === 'abs') {
    const size = event.data.axis === 'x' ? screen.width : screen.height;
    return `${event.data.axis}${Math.floor((event.data.value * size) / 32768)}`;
  }
  if (event.type === 'btn') return `${event.data.down ? '+' : '-'}${event.data.button}`;
  return `${event.data.down ? '+' : '-'}${event.data.key.data}`;
}

async function perform(input: ActionInput): Promise<string> {
  const { port, words } = recorder();
  await new InputDevices(port, screen).perform(Action.parse(input) as InputAction, never);
  return words.join(' ');
}

describe('input', () => {
  it('clicks where it was told, as often as it was told', async () => {
    expect(await perform({ type: 'click', x: 0, y: 719 })).toBe('x0+y719 +left -left |');
    expect(await perform({ type: 'click', x: 1279, y: 0, button: 'right', count: 2 })).toBe(
      'x1279+y0 +right -right +right -right |',
    );
  });

  it('holds modifiers around a click and waits between the two devices', async () => {
    expect(await perform({ type: 'click', x: 5, y: 6, modifiers: ['ctrl', 'shift'] })).toBe(
      '+ctrl +shift | x5+y6 +left -left | -shift -ctrl |',
    );
  });

  it('drags along the path in small steps, the button held, and rests before the drop', async () => {
    const path: [number, number][] = [
      [100, 100],
      [148, 100],
      [148, 144],
    ];
    const moves = 'x124+y100 x148+y100 x148+y122';
    const there = 'x148+y142 | rest x148+y144 | rest';
    expect(await perform({ type: 'drag', path })).toBe(`x100+y100 | +left | ${moves} | ${there} ${there} -left |`);
  });

  it('drags over no distance', async () => {
    const path: [number, number][] = [
      [7, 8],
      [7, 8],
    ];
    expect(await perform({ type: 'drag', path })).toBe(
      'x7+y8 | +left | x7+y8 | rest x7+y8 | rest x7+y8 | rest x7+y8 | rest -left |',
    );
  });

  it('scrolls by notches, downwards when dy is positive, sideways through the guest', async () => {
    expect(await perform({ type: 'scroll', x: 1, y: 2, dy: 2 })).toBe(
      'x1+y2 +wheel-down -wheel-down +wheel-down -wheel-down |',
    );
    expect(await perform({ type: 'scroll', x: 1, y: 2, dy: -1, dx: 3 })).toBe('x1+y2 +wheel-up -wheel-up | sideways:3');
  });

  it('types shifted characters with shift', async () => {
    expect(await perform({ type: 'type', text: 'aB' })).toBe('+a -a +shift +b -b -shift |');
  });

  it('waits until what was typed is read, before what is not would overflow', async () => {
    const runs = (await perform({ type: 'type', text: 'x'.repeat(100) })).split('|');
    expect(Math.max(...runs.map((run) => run.match(/[+-]x/g)?.length ?? 0))).toBeLessThanOrEqual(16);
    expect(runs.join('').match(/[+]x/g)).toHaveLength(100);
  });

  it('types a text with any foreign character wholly through the guest, in order', async () => {
    expect(await perform({ type: 'type', text: 'Grüße\r\nan alle' })).toBe('text:Grüße\nan alle');
  });

  it('presses keys of a hotkey in order and releases them backwards', async () => {
    expect(await perform({ type: 'hotkey', keys: ['ctrl', 'alt', 't'] })).toBe('+ctrl +alt +t -t -alt -ctrl |');
    expect(await perform({ type: 'hotkey', keys: ['ctrl', '+'] })).toBe('+shift +ctrl +equal -equal -ctrl -shift |');
    expect(await perform({ type: 'key_down', key: 'shift' })).toBe('+shift |');
  });

  it.each<ActionInput>([
    { type: 'click', x: 1280, y: 0 },
    { type: 'move', x: -1, y: 0 },
    {
      type: 'drag',
      path: [
        [0, 0],
        [0, 720],
      ],
    },
    { type: 'key', key: 'nosuchkey' },
    { type: 'hotkey', keys: ['ctrl', 'nosuchkey'] },
    { type: 'type', text: 'é\u0007' },
  ])('refuses $type before anything is sent', async (input) => {
    const { port, words } = recorder();
    const sent = new InputDevices(port, screen).perform(Action.parse(input) as InputAction, never);
    await expect(sent).rejects.toBeInstanceOf(ActionRejected);
    expect(words).toEqual([]);
  });

  it('says that an action may have landed when its acknowledgement is lost, and never repeats it', async () => {
    const { port, words } = recorder((word) => (word === '|' ? new Error('guest is silent') : null));
    const devices = new InputDevices(port, screen);
    const clicked = devices.perform({ type: 'click', x: 1, y: 1, button: 'left', count: 1, modifiers: [] }, never);
    await expect(clicked).rejects.toBeInstanceOf(MaybeDelivered);
    await expect(clicked).rejects.toThrow('click may have reached the guest: guest is silent');
    expect(words.filter((word) => word === '+left')).toHaveLength(1);
  });

  describe('an action that ends half-way', () => {
    /** @param barriers after so many of them the guest is silent */
    async function cutShort(input: ActionInput, barriers: number): Promise<string> {
      let left = barriers;
      const { port, words } = recorder((word) => (word === '|' && left-- === 0 ? new Error('guest is silent') : null));
      const devices = new InputDevices(port, screen);
      await expect(devices.perform(Action.parse(input) as InputAction, never)).rejects.toBeInstanceOf(MaybeDelivered);
      return words.join(' ');
    }

    it('lets go of what it holds', async () => {
      const click: ActionInput = { type: 'click', x: 5, y: 6, modifiers: ['ctrl', 'shift'] };
      expect(await cutShort(click, 0)).toBe('+ctrl +shift | -shift -ctrl');
      expect(await cutShort(click, 1)).toBe('+ctrl +shift | x5+y6 +left -left | -shift -ctrl');
      expect(await cutShort(click, 2)).toBe('+ctrl +shift | x5+y6 +left -left | -shift -ctrl |');
      const path: [number, number][] = [
        [7, 8],
        [7, 8],
      ];
      expect(await cutShort({ type: 'drag', path }, 1)).toBe('x7+y8 | +left | -left');
      const text = `${'x'.repeat(7)}A`;
      expect(await cutShort({ type: 'type', text }, 0)).toBe(`${'+x -x '.repeat(7)}+shift +a | -a -shift`);
    });

    it('goes on holding what it is there to hold', async () => {
      expect(await cutShort({ type: 'key_down', key: 'shift' }, 0)).toBe('+shift |');
      expect(await cutShort({ type: 'mouse_down', x: 1, y: 2 }, 0)).toBe('x1+y2 +left |');
    });

    it('lets go also when its time is over, before the next one has its turn', async () => {
      const over = new AbortController();
      const { port, words } = recorder((word) => {
        if (word === '|') over.abort(new Error('time is over'));
        return over.signal.aborted && word === '|' && words.length < 5 ? over.signal.reason : null;
      });
      const devices = new InputDevices(port, screen);
      const click = Action.parse({ type: 'click', x: 1, y: 1, modifiers: ['alt'] }) as InputAction;
      const both = [devices.perform(click, over.signal), devices.perform({ type: 'key', key: 'a' }, never)];
      expect((await Promise.allSettled(both)).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
      expect(words.join(' ')).toBe('+alt | -alt +a -a |');
    });
  });

  it('sends nothing of an action that was cancelled before its turn', async () => {
    const { port, words } = recorder();
    const gone = AbortSignal.abort(new Error('over'));
    await expect(new InputDevices(port, screen).perform({ type: 'move', x: 1, y: 1 }, gone)).rejects.toThrow('over');
    expect(words).toEqual([]);
  });

  it('runs actions one after the other', async () => {
    const { port, words } = recorder();
    const devices = new InputDevices(port, screen);
    await Promise.all([
      devices.perform({ type: 'key', key: 'a' }, never),
      devices.perform({ type: 'key', key: 'b' }, never),
    ]);
    expect(words.join(' ')).toBe('+a -a | +b -b |');
  });
});
