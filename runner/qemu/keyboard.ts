/**
 * Key names and characters of a US keyboard, as QEMU's qcodes.
 * Names are those people know from pyautogui, xdotool and browsers; case, `_`, `-` and spaces between words do not matter.
 */

export interface Stroke {
  qcode: string;
  /** Shift is held while it is struck. */
  shift: boolean;
}

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';

/** Characters without shift, by qcode. */
const PLAIN: Record<string, string> = {
  '`': 'grave_accent',
  '-': 'minus',
  '=': 'equal',
  '[': 'bracket_left',
  ']': 'bracket_right',
  '\\': 'backslash',
  ';': 'semicolon',
  "'": 'apostrophe',
  ',': 'comma',
  '.': 'dot',
  '/': 'slash',
  ' ': 'spc',
  '\n': 'ret',
  '\r': 'ret',
  '\t': 'tab',
  '\b': 'backspace',
};

/** What shift makes of a key: the character, and the one on the same key without it. */
const SHIFTED: Record<string, string> = {
  '~': '`',
  '!': '1',
  '@': '2',
  '#': '3',
  $: '4',
  '%': '5',
  '^': '6',
  '&': '7',
  '*': '8',
  '(': '9',
  ')': '0',
  _: '-',
  '+': '=',
  '{': '[',
  '}': ']',
  '|': '\\',
  ':': ';',
  '"': "'",
  '<': ',',
  '>': '.',
  '?': '/',
};

/** Names by qcode; each name as `normalise` leaves it. */
const NAMES: Record<string, readonly string[]> = {
  ret: ['enter', 'return', 'ret', 'newline', 'linefeed'],
  kp_enter: ['kpenter', 'numpadenter'],
  tab: ['tab'],
  spc: ['space', 'spacebar', 'spc'],
  backspace: ['backspace', 'bksp', 'back'],
  delete: ['delete', 'del'],
  esc: ['escape', 'esc'],
  insert: ['insert', 'ins'],
  home: ['home'],
  end: ['end'],
  pgup: ['pageup', 'pgup', 'prior'],
  pgdn: ['pagedown', 'pgdn', 'next'],
  up: ['up', 'arrowup', 'uparrow'],
  down: ['down', 'arrowdown', 'downarrow'],
  left: ['left', 'arrowleft', 'leftarrow'],
  right: ['right', 'arrowright', 'rightarrow'],
  shift: ['shift', 'shiftl', 'shiftleft', 'leftshift'],
  shift_r: ['shiftr', 'shiftright', 'rightshift'],
  ctrl: ['ctrl', 'control', 'ctrll', 'ctrlleft', 'controll', 'controlleft', 'leftctrl', 'leftcontrol'],
  ctrl_r: ['ctrlr', 'ctrlright', 'controlr', 'controlright', 'rightctrl', 'rightcontrol'],
  alt: ['alt', 'altl', 'altleft', 'leftalt', 'option', 'optionleft'],
  alt_r: ['altr', 'altright', 'rightalt', 'altgr', 'isolevel3shift', 'optionright'],
  meta_l: ['super', 'superl', 'meta', 'metal', 'win', 'winleft', 'windows', 'cmd', 'command', 'leftmeta', 'metaleft'],
  meta_r: ['superr', 'metar', 'winright', 'rightmeta', 'metaright'],
  compose: ['menu', 'apps', 'contextmenu', 'application'],
  caps_lock: ['capslock'],
  num_lock: ['numlock'],
  scroll_lock: ['scrolllock'],
  print: ['print', 'printscreen', 'prtsc', 'prtscr', 'prntscrn', 'sysrq'],
  pause: ['pause', 'break'],
  kp_divide: ['divide', 'kpdivide', 'numpaddivide'],
  kp_multiply: ['multiply', 'kpmultiply', 'numpadmultiply'],
  kp_subtract: ['subtract', 'kpsubtract', 'numpadsubtract'],
  kp_add: ['add', 'kpadd', 'numpadadd'],
  kp_decimal: ['decimal', 'kpdecimal', 'numpaddecimal'],
  audiomute: ['volumemute', 'audiomute', 'xf86audiomute'],
  volumedown: ['volumedown', 'audiolowervolume', 'xf86audiolowervolume'],
  volumeup: ['volumeup', 'audioraisevolume', 'xf86audioraisevolume'],
  // Characters by the names X gives them.
  minus: ['minus', 'hyphen', 'dash'],
  equal: ['equal', 'equals'],
  comma: ['comma'],
  dot: ['period', 'dot'],
  slash: ['slash'],
  backslash: ['backslash'],
  semicolon: ['semicolon'],
  apostrophe: ['apostrophe', 'quoteright'],
  grave_accent: ['grave', 'graveaccent', 'quoteleft', 'backquote', 'backtick'],
  bracket_left: ['bracketleft', 'leftbracket'],
  bracket_right: ['bracketright', 'rightbracket'],
};

/** Names of characters that need shift. */
const SHIFTED_NAMES: Record<string, string> = {
  asciitilde: '~',
  tilde: '~',
  exclam: '!',
  at: '@',
  numbersign: '#',
  hash: '#',
  dollar: '$',
  percent: '%',
  asciicircum: '^',
  caret: '^',
  ampersand: '&',
  asterisk: '*',
  parenleft: '(',
  parenright: ')',
  underscore: '_',
  plus: '+',
  braceleft: '{',
  braceright: '}',
  bar: '|',
  pipe: '|',
  colon: ':',
  quotedbl: '"',
  less: '<',
  greater: '>',
  question: '?',
};

const byCharacter = new Map<string, Stroke>();
for (const letter of LETTERS) {
  byCharacter.set(letter, { qcode: letter, shift: false });
  byCharacter.set(letter.toUpperCase(), { qcode: letter, shift: true });
}
for (const digit of '0123456789') byCharacter.set(digit, { qcode: digit, shift: false });
for (const [character, qcode] of Object.entries(PLAIN)) byCharacter.set(character, { qcode, shift: false });
for (const [character, base] of Object.entries(SHIFTED)) {
  byCharacter.set(character, { qcode: PLAIN[base] ?? base, shift: true });
}

const byName = new Map<string, Stroke>();
for (const [qcode, names] of Object.entries(NAMES)) {
  for (const name of names) byName.set(name, { qcode, shift: false });
}
for (let n = 1; n <= 12; n += 1) byName.set(`f${n}`, { qcode: `f${n}`, shift: false });
for (const digit of '0123456789') {
  for (const prefix of ['num', 'kp', 'numpad']) byName.set(`${prefix}${digit}`, { qcode: `kp_${digit}`, shift: false });
}
for (const [name, character] of Object.entries(SHIFTED_NAMES)) {
  const stroke = byCharacter.get(character);
  if (stroke) byName.set(name, stroke);
}

/** The key that types a character on a US keyboard; null for one it has no key for. */
export function characterStroke(character: string): Stroke | null {
  return byCharacter.get(character) ?? null;
}

/** The key of that name, or the one that types this character; null for one a US keyboard has not. */
export function keyStroke(name: string): Stroke | null {
  return byCharacter.get(name) ?? byName.get(normalise(name)) ?? null;
}

/** The strokes of a text; null when any of its characters is on no key, so that it must be typed another way. */
export function textStrokes(text: string): Stroke[] | null {
  const strokes: Stroke[] = [];
  for (const character of text.replaceAll('\r\n', '\n')) {
    const stroke = byCharacter.get(character);
    if (!stroke) return null;
    strokes.push(stroke);
  }
  return strokes;
}

/** Every name and character there is a key for. */
export function knownKeys(): string[] {
  return [...byCharacter.keys(), ...byName.keys()];
}

function normalise(name: string): string {
  return name.toLowerCase().replaceAll(/[_\- ]/g, '');
}
