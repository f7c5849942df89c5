import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { ActionRejected } from '../../runner/replica/contract.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { Action, type ActionInput, type InputAction } from '../../schemas/index.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

/**
 * Covers the guest's screen with a window of its own and writes down every event that X gives it, in X's words:
 * `press 1 x y`, `release 1 x y`, `move x y`, `key a`, `key+shift A`, `up a`.
 */
const WATCHER = `
from Xlib import X, XK, display
old = {f'{c}{n}' for c in 'LR' for n in range(1, 16)} | {'Prior', 'Next'}
d = display.Display(':0')
s = d.screen()
w = s.root.create_window(0, 0, s.width_in_pixels, s.height_in_pixels, 0, s.root_depth, override_redirect=1,
    event_mask=X.KeyPressMask | X.KeyReleaseMask | X.ButtonPressMask | X.ButtonReleaseMask | X.PointerMotionMask)
w.map()
d.sync()
w.set_input_focus(X.RevertToParent, X.CurrentTime)
d.sync()
# Some keys have a second name, from keyboards of long ago.
names = {getattr(XK, n): n[3:] for n in sorted(dir(XK), reverse=True) if n.startswith('XK_') and n[3:] not in old}
out = open('/tmp/events', 'w', buffering=1)
print('ready', file=out)
while True:
    e = d.next_event()
    if e.type in (X.ButtonPress, X.ButtonRelease):
        mods = ''.join(f'+{n}' for n, m in (('shift', 1), ('ctrl', 4), ('alt', 8), ('super', 64)) if e.state & m)
        print('press' if e.type == X.ButtonPress else 'release', str(e.detail) + mods, e.root_x, e.root_y, file=out)
    elif e.type == X.MotionNotify:
        print('move', e.root_x, e.root_y, file=out)
    elif e.type in (X.KeyPress, X.KeyRelease):
        shift = e.state & 1
        sym = d.keycode_to_keysym(e.detail, 1 if shift else 0) or d.keycode_to_keysym(e.detail, 0)
        mods = ''.join(f'+{n}' for n, m in (('shift', 1), ('ctrl', 4), ('alt', 8), ('super', 64)) if e.state & m)
        print(('key' if e.type == X.KeyPress else 'up') + mods, names.get(sym, hex(sym)), file=out)
`;

let vm: Fixture;
let replica: VirtualReplica;
beforeAll(async () => {
  vm = await openFixture('test-input');
  replica = await vm.replica('leased');
  await replica.guest.writeFile('/tmp/watcher.py', Buffer.from(WATCHER), {}, never);
});
afterAll(() => vm?.[Symbol.asyncDispose]());

const act = (input: ActionInput): Promise<void> => replica.act(Action.parse(input) as InputAction, never);
const Pointer = z.object({ x: z.number(), y: z.number() });
const pointer = (): Promise<z.infer<typeof Pointer>> =>
  replica.machine.helper.call('pointer', {}, Pointer, { deadlineMs: 10_000 });

describe('the pointer', () => {
  it.each([
    [0, 0],
    [1279, 0],
    [0, 719],
    [1279, 719],
    [640, 360],
    [639, 359],
    [1, 718],
    [333, 77],
  ])('goes to (%i, %i), to the pixel', async (x, y) => {
    await act({ type: 'move', x, y });
    await expect.poll(pointer, { timeout: 5_000 }).toMatchObject({ x, y });
  });

  it('reaches every column and row', async () => {
    for (let n = 0; n < 64; n += 1) {
      const at = { x: (n * 20 + 7) % 1280, y: (n * 11 + 3) % 720 };
      await act({ type: 'move', ...at });
      await expect.poll(pointer, { timeout: 5_000 }).toMatchObject(at);
    }
  });

  it('stays on the screen', async () => {
    await expect(act({ type: 'move', x: 1280, y: 0 })).rejects.toBeInstanceOf(ActionRejected);
  });
});

describe('an action, as X sees it', () => {
  beforeAll(async () => {
    await replica.guest.spawn({ argv: ['python3', '/tmp/watcher.py'] }, never);
    await vi.waitFor(async () => expect(await events()).toContain('ready'), { timeout: 60_000, interval: 300 });
  });
  afterAll(() => guestShell(replica, 'pkill -f "[w]atcher.py"', 'root'));

  /** Each test begins with the pointer at (10, 10) and nothing written down. */
  let past = 0;
  beforeEach(async () => {
    await act({ type: 'move', x: 20, y: 20 });
    await act({ type: 'move', x: 10, y: 10 });
    await expect.poll(async () => (await events()).at(-1), { timeout: 10_000 }).toBe('move 10 10');
    past = (await events()).length;
  });

  async function events(): Promise<string[]> {
    const text = await replica.guest.readFile('/tmp/events', { maxBytes: 1e6 }, never).catch(() => '');
    return text
      .toString()
      .split('\n')
      .filter((line) => line !== '');
  }

  /** The events of an action once no more come. */
  async function seen(input: ActionInput): Promise<string[]> {
    await act(input);
    return rest();
  }

  async function rest(): Promise<string[]> {
    let before: string[] = [];
    await expect
      .poll(
        async () => {
          const now = (await events()).slice(past);
          const still = now.length > 0 && now.length === before.length;
          before = now;
          return still;
        },
        { timeout: 20_000, interval: 400 },
      )
      .toBe(true);
    past += before.length;
    return before;
  }

  it('click', async () => {
    expect(await seen({ type: 'click', x: 100, y: 200 })).toEqual([
      'move 100 200',
      'press 1 100 200',
      'release 1 100 200',
    ]);
    expect(await seen({ type: 'click', x: 100, y: 200, button: 'right' })).toEqual([
      'press 3 100 200',
      'release 3 100 200',
    ]);
    expect(await seen({ type: 'click', x: 100, y: 200, button: 'middle' })).toEqual([
      'press 2 100 200',
      'release 2 100 200',
    ]);
  });

  it('click, three times, with modifiers', async () => {
    const list = await seen({ type: 'click', x: 5, y: 6, count: 3, modifiers: ['ctrl', 'shift'] });
    expect(list.slice(0, 2)).toEqual(['key Control_L', 'key+ctrl Shift_L']);
    expect(list.filter((line) => line.startsWith('press'))).toEqual(Array(3).fill('press 1+shift+ctrl 5 6'));
    expect(list.at(-1)).toBe('up+ctrl Control_L');
  });

  it('mouse_down and mouse_up', async () => {
    await act({ type: 'mouse_down', x: 30, y: 40 });
    expect(await seen({ type: 'mouse_up', x: 50, y: 60 })).toEqual([
      'move 30 40',
      'press 1 30 40',
      'move 50 60',
      'release 1 50 60',
    ]);
  });

  it('drag', async () => {
    const list = await seen({
      type: 'drag',
      path: [
        [100, 100],
        [300, 100],
        [300, 250],
      ],
    });
    expect(list[0]).toBe('move 100 100');
    expect(list[1]).toBe('press 1 100 100');
    expect(list.at(-1)).toBe('release 1 300 250');
    const moves = list.slice(2, -1);
    expect(moves.every((line) => line.startsWith('move'))).toBe(true);
    expect(moves).toContain('move 300 100');
    expect(moves.length).toBeGreaterThan(8);
  });

  it('scroll, all four ways', async () => {
    const presses = (list: string[]): string[] => list.filter((line) => line.startsWith('press'));
    expect(presses(await seen({ type: 'scroll', x: 400, y: 300, dy: 3 }))).toEqual(Array(3).fill('press 5 400 300'));
    expect(presses(await seen({ type: 'scroll', x: 400, y: 300, dy: -2 }))).toEqual(Array(2).fill('press 4 400 300'));
    expect(presses(await seen({ type: 'scroll', x: 400, y: 300, dx: 2 }))).toEqual(Array(2).fill('press 7 400 300'));
    expect(presses(await seen({ type: 'scroll', x: 400, y: 300, dx: -1 }))).toEqual(['press 6 400 300']);
  });

  it.each([
    ['enter', 'Return'],
    ['tab', 'Tab'],
    ['esc', 'Escape'],
    ['page_down', 'Page_Down'],
    ['home', 'Home'],
    ['left', 'Left'],
    ['delete', 'Delete'],
    ['f5', 'F5'],
    ['f12', 'F12'],
    ['win', 'Super_L'],
    ['menu', 'Menu'],
    ['print', 'Print'],
    ['kp_5', 'KP_Begin'],
    ['a', 'a'],
    ['7', '7'],
    ['space', 'space'],
  ])('key %s', async (name, keysym) => {
    expect((await seen({ type: 'key', key: name }))[0]).toBe(`key ${keysym}`);
  });

  it('key with shift', async () => {
    expect(await seen({ type: 'key', key: '?' })).toEqual([
      'key Shift_L',
      'key+shift question',
      'up+shift question',
      'up+shift Shift_L',
    ]);
  });

  it('key_down, key_up', async () => {
    await act({ type: 'key_down', key: 'alt' });
    await act({ type: 'key', key: 'x' });
    expect(await seen({ type: 'key_up', key: 'alt' })).toEqual(['key Alt_L', 'key+alt x', 'up+alt x', 'up+alt Alt_L']);
  });

  it('hotkey', async () => {
    const list = await seen({ type: 'hotkey', keys: ['ctrl', 'alt', 'j'] });
    expect(list.slice(0, 3)).toEqual(['key Control_L', 'key+ctrl Alt_L', 'key+ctrl+alt j']);
    expect(list.at(-1)).toBe('up+ctrl Control_L');
  });
});

describe('a text editor takes the pointer for a mouse, not for a finger', () => {
  const LINE = 'abcdefghijklmnopqrstuvwxyz0123456789';
  /** In its second line, and 200 pixels further. */
  const [from, to] = [
    [300, 168],
    [500, 168],
  ] as [[number, number], [number, number]];
  const selected = (): Promise<string> =>
    guestShell(replica, 'DISPLAY=:0 timeout 5 xclip -o -selection primary 2> /dev/null || true');

  beforeAll(async () => {
    await replica.guest.writeFile('/tmp/lines', Buffer.from(`${LINE}\n`.repeat(20)), {}, never);
    await replica.guest.spawn({ argv: ['mousepad', '/tmp/lines'] }, never);
    await vi.waitFor(
      async () => expect(await guestShell(replica, 'xdotool search --onlyvisible --name lines || true')).not.toBe(''),
      { timeout: 60_000, interval: 300 },
    );
    await replica.settle({ minMs: 500, maxMs: 30_000 }, never);
  });
  afterAll(() => guestShell(replica, 'pkill mousepad', 'root'));

  it('a drag selects from letter to letter, and the same each time', async () => {
    const texts: string[] = [];
    for (let time = 0; time < 4; time += 1) {
      await act({ type: 'drag', path: [from, to] });
      await expect.poll(selected, { timeout: 10_000 }).not.toBe('');
      texts.push(await selected());
      await act({ type: 'click', x: 600, y: 500 });
      await expect.poll(selected, { timeout: 10_000 }).toBe('');
    }
    expect(new Set(texts)).toEqual(new Set(['cdefghijklmnopqrstuvwxyz0']));
  });

  it('a button held down selects nothing', async () => {
    await act({ type: 'mouse_down', x: from[0], y: from[1] });
    await replica.settle({ minMs: 3_000, maxMs: 10_000 }, never);
    await act({ type: 'mouse_up', x: from[0], y: from[1] });
    await replica.settle({ minMs: 500, maxMs: 10_000 }, never);
    expect(await selected()).toBe('');
  });

  it('two clicks select a word', async () => {
    await act({ type: 'click', x: from[0], y: from[1], count: 2 });
    await expect.poll(selected, { timeout: 10_000 }).toBe(LINE);
  });
});

describe('typed text', () => {
  const file = '/tmp/typed';

  /** A terminal whose `cat` writes what is typed to a file, line by line. */
  async function typeInto(text: string): Promise<string> {
    await guestShell(replica, `pkill lxterminal; rm -f ${file}; true`, 'root');
    await replica.guest.spawn({ argv: ['lxterminal', '-e', `sh -c 'cat > ${file}'`] }, never);
    await expect
      .poll(
        () =>
          guestShell(
            replica,
            `test -e ${file} && xdotool search --sync --onlyvisible --class lxterminal windowfocus && echo up || true`,
          ),
        { timeout: 60_000 },
      )
      .toContain('up');
    await act({ type: 'type', text: `${text}\n` });
    let before = '';
    await expect
      .poll(
        async () => {
          const now = await guestShell(replica, `cat ${file}`);
          const still = now !== '' && now === before;
          before = now;
          return still;
        },
        { timeout: 60_000, interval: 500 },
      )
      .toBe(true);
    return before;
  }

  it('arrives with capitals, digits and every punctuation mark', async () => {
    const text = 'The Quick BROWN fox, 0123456789: `~!@#$%^&*()-_=+[{]}\\|;:\'",<.>/?';
    expect(await typeInto(text)).toBe(text);
  });

  it('arrives whole and in order, however long', async () => {
    const text = Array.from({ length: 12 }, (_, n) => `Line ${n}: pack my BOX with five dozen liquor jugs!`).join('\n');
    expect(await typeInto(text)).toBe(text);
  });

  it('arrives whole while the guest is busy', async () => {
    await guestShell(replica, 'for n in 1 2 3 4; do (timeout 60 sh -c "while :; do :; done" &) ; done', 'user');
    const text = Array.from(
      { length: 2 },
      (_, n) => `Busy ${n} ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz`,
    ).join('\n');
    expect(await typeInto(text)).toBe(text);
    await guestShell(replica, 'pkill -f "[w]hile :"; true', 'root');
  });

  it('arrives in any script', async () => {
    const text = 'Grüße, naïve café – Ελλάδα, Привет, 日本語 “quotes” €5 ½ A1!';
    expect(await typeInto(text)).toBe(text);
  });
});
