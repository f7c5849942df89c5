import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { characterStroke, keyStroke, knownKeys, textStrokes } from '../../runner/qemu/keyboard.ts';

/** What a US keyboard types, written down apart from the table under test: plain and shifted, by qcode. */
const US: Record<string, readonly [string, string]> = {
  grave_accent: ['`', '~'],
  1: ['1', '!'],
  2: ['2', '@'],
  3: ['3', '#'],
  4: ['4', '$'],
  5: ['5', '%'],
  6: ['6', '^'],
  7: ['7', '&'],
  8: ['8', '*'],
  9: ['9', '('],
  0: ['0', ')'],
  minus: ['-', '_'],
  equal: ['=', '+'],
  bracket_left: ['[', '{'],
  bracket_right: [']', '}'],
  backslash: ['\\', '|'],
  semicolon: [';', ':'],
  apostrophe: ["'", '"'],
  comma: [',', '<'],
  dot: ['.', '>'],
  slash: ['/', '?'],
  spc: [' ', ' '],
  ret: ['\n', '\n'],
  tab: ['\t', '\t'],
  ...Object.fromEntries([...'abcdefghijklmnopqrstuvwxyz'].map((it) => [it, [it, it.toUpperCase()]])),
};

function typed(text: string): string | null {
  const strokes = textStrokes(text);
  if (!strokes) return null;
  return strokes.map(({ qcode, shift }) => US[qcode]?.[shift ? 1 : 0] ?? `(${qcode})`).join('');
}

describe('keyboard', () => {
  it('types every printable ASCII character as itself', () => {
    const printable = Array.from({ length: 95 }, (_, n) => String.fromCharCode(32 + n)).join('');
    expect(typed(printable)).toBe(printable);
  });

  it('types any ASCII text as itself', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.integer({ min: 32, max: 126 }).map((n) => String.fromCharCode(n)) }), (text) => {
        expect(typed(text)).toBe(text);
      }),
    );
  });

  it('takes a Windows line end for one', () => {
    expect(typed('a\r\nb\nc\td')).toBe('a\nb\nc\td');
  });

  it('has no key for a character that is on none', () => {
    for (const character of ['é', 'ß', '€', '日', '🙂', '\u0007']) expect(characterStroke(character)).toBeNull();
    expect(textStrokes('naïve')).toBeNull();
  });

  it.each([
    ['enter', 'ret'],
    ['Return', 'ret'],
    ['Page_Down', 'pgdn'],
    ['pagedown', 'pgdn'],
    ['ArrowLeft', 'left'],
    ['ctrlleft', 'ctrl'],
    ['Control_L', 'ctrl'],
    ['super', 'meta_l'],
    ['win', 'meta_l'],
    ['F11', 'f11'],
    ['KP_5', 'kp_5'],
    ['num5', 'kp_5'],
    ['prtsc', 'print'],
    ['esc', 'esc'],
    ['del', 'delete'],
    ['menu', 'compose'],
    ['minus', 'minus'],
    ['-', 'minus'],
  ])('knows %s', (name, qcode) => {
    expect(keyStroke(name)).toEqual({ qcode, shift: false });
  });

  it('holds shift for names and characters that need it', () => {
    expect(keyStroke('plus')).toEqual({ qcode: 'equal', shift: true });
    expect(keyStroke('?')).toEqual({ qcode: 'slash', shift: true });
    expect(keyStroke('A')).toEqual({ qcode: 'a', shift: true });
    expect(keyStroke('a')).toEqual({ qcode: 'a', shift: false });
  });

  it('knows no other name', () => {
    for (const name of ['hyper', 'f13x', '', 'enterr']) expect(keyStroke(name)).toBeNull();
  });

  it('finds each of its own names', () => {
    for (const name of knownKeys()) expect(keyStroke(name), name).not.toBeNull();
  });
});
