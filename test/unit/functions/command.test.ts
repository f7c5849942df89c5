import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { argvOf } from '../../../functions/command/command-line.ts';
import { fillPlaceholders } from '../../../functions/command/placeholders.ts';
import { asText } from '../../../functions/command/text.ts';
import { splitWords, WordsError } from '../../../functions/command/words.ts';
import { resolveGuestPath } from '../../../functions/guest-path.ts';

const account = { name: 'user', password: 'secret' };

describe('splitting a command line', () => {
  // The right-hand sides are what Python's shlex.split answers.
  it.each([
    ['a b', ['a', 'b']],
    ['a  "b c" d', ['a', 'b c', 'd']],
    [`a 'b "c' d`, ['a', 'b "c', 'd']],
    ['a\\ b', ['a b']],
    ['"a\\"b" "\\n" "\\\\" "\\$x"', ['a"b', '\\n', '\\', '\\$x']],
    ["'a\\b'", ['a\\b']],
    ['a""b', ['ab']],
    [`"" '' x`, ['', '', 'x']],
    ['a#b #c', ['a#b', '#c']],
    ["it\\'s", ["it's"]],
    ['x\ty\nz', ['x', 'y', 'z']],
    ['é "ü ö"', ['é', 'ü ö']],
    ['a;b|c>d $HOME *', ['a;b|c>d', '$HOME', '*']],
    ['a\\\nb', ['a\nb']],
    ['"a\\\nb"', ['a\\\nb']],
    ['  lead ', ['lead']],
    ['', []],
  ])('%j', (line, words) => expect(splitWords(line)).toEqual(words));

  it.each(['"a', "a'", 'a\\', '"a\\"'])('refuses %j', (line) => expect(() => splitWords(line)).toThrow(WordsError));

  it('gives back any words that were quoted', () => {
    const quote = (word: string): string => `'${word.replaceAll("'", `'"'"'`)}'`;
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'grapheme' })), (words) => {
        expect(splitWords(words.map(quote).join(' '))).toEqual(words);
      }),
    );
  });

  it('never answers with anything but words or a WordsError', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', ' ', '"', "'", '\\', '\n') }), (line) => {
        try {
          expect(splitWords(line).join('').length).toBeLessThanOrEqual(line.length);
        } catch (error) {
          expect(error).toBeInstanceOf(WordsError);
        }
      }),
    );
  });
});

describe('the words of a command', () => {
  it('hands a shell its text as it is', () =>
    expect(argvOf({ command: 'ls ~/a | wc', shell: true }, account)).toEqual(['/bin/sh', '-c', 'ls ~/a | wc']));
  it('runs a list under a shell as Python does: script first, then its parameters', () =>
    expect(argvOf({ command: ['echo $0', 'x'], shell: true }, account)).toEqual(['/bin/sh', '-c', 'echo $0', 'x']));
  it('splits a text and expands the home, and only at the head of a word', () =>
    expect(argvOf({ command: 'cp ~/a "~/b c" x~/d ~', shell: false }, account)).toEqual([
      'cp',
      '/home/user/a',
      '/home/user/b c',
      'x~/d',
      '~',
    ]));
  it('passes a pipe in a list on as a word', () =>
    expect(argvOf({ command: ['ls', '/x', '|', 'grep', 'y'], shell: false }, account)).toHaveLength(5));
});

it('fills in the placeholders of OSWorld, halves rounded down, and no others', () => {
  const guest = { account, screen: { width: 1281, height: 721 } };
  const text = '{CLIENT_PASSWORD} {SCREEN_WIDTH}x{SCREEN_HEIGHT} {SCREEN_WIDTH_HALF},{SCREEN_HEIGHT_HALF} {HOME} {}';
  expect(fillPlaceholders(text, guest)).toBe('secret 1281x721 640,360 {HOME} {}');
});

it('does not read a password that looks like a pattern as one', () => {
  const guest = { account: { name: 'user', password: "$&$'{SCREEN_WIDTH}" }, screen: { width: 1, height: 1 } };
  expect(fillPlaceholders('{CLIENT_PASSWORD}', guest)).toBe("$&$'{SCREEN_WIDTH}");
});

it.each([
  ['~', '/home/user'],
  ['~/a', '/home/user/a'],
  ['/etc/hosts', '/etc/hosts'],
  ['setup.sh', '/home/user/setup.sh'],
])('path %s in the guest is %s', (name, whole) => expect(resolveGuestPath(name, account)).toBe(whole));

it("reads bytes as Python's text mode does", () => {
  expect(asText(Buffer.from('a\r\nb\rc\n'))).toBe('a\nb\nc\n');
  expect(asText(Buffer.from('\ufeffé'))).toBe('\ufeffé');
  expect(asText(Buffer.from([0x61, 0xff]))).toBe('a\ufffd');
});
