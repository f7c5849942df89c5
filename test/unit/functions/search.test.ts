import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { occurring } from '../../../functions/command/search.ts';
import { asText, textPieces } from '../../../functions/command/text.ts';
import { Gatherer } from '../../../functions/gatherer.ts';
import { never } from './local-guest.ts';

const few = fc.string({ unit: fc.constantFrom('a', 'b', '\u20ac'), maxLength: 8 });

describe('texts in a longer one', () => {
  it('are those that it includes, however it is cut', () =>
    fc.assert(
      fc.asyncProperty(fc.array(few), fc.array(few), async (texts, pieces) => {
        const whole = pieces.join('');
        const expected = new Set(texts.filter((text) => text === '' || whole.includes(text)));
        expect(await occurring(texts, pieces, never)).toEqual(expected);
      }),
      { numRuns: 2_000 },
    ));

  it.each([
    [[], 'a', []],
    [[''], '', ['']],
    [['abcd', 'bc'], 'abce', ['bc']],
    [['a', 'aa', 'aaa'], 'aa', ['a', 'aa']],
    [['she', 'he', 'hers'], 'ushers', ['she', 'he', 'hers']],
    [['\ud83d\ude00'], 'x\ud83d\ude00', ['\ud83d\ude00']],
  ])('%j in %j', async (texts, whole, found) => expect(await occurring(texts, [whole], never)).toEqual(new Set(found)));

  it('takes turns with others as the text is long, and not as there are many', async () => {
    const text = 'a'.repeat(2 ** 21);
    const turnsOf = async (texts: string[]): Promise<number> => {
      let turns = 0;
      let over = false;
      const count = (): void => {
        turns += 1;
        if (!over) setImmediate(count);
      };
      setImmediate(count);
      await occurring(texts, [text], never);
      over = true;
      return turns;
    };
    const one = await turnsOf(['ab']);
    const many = await turnsOf(Array.from({ length: 1_000 }, (_, n) => `${'a'.repeat(n % 50)}b${n}`));
    expect(one).toBeGreaterThanOrEqual(15);
    expect(many).toBeGreaterThanOrEqual(one);
    expect(many).toBeLessThan(2 * one + 10);
  });

  it('ends with the reason of its signal', async () => {
    const stop = new AbortController();
    const searching = occurring(['b'.repeat(2 ** 20)], ['a'.repeat(2 ** 22)], stop.signal);
    stop.abort(new Error('enough'));
    await expect(searching).rejects.toThrow('enough');
  });
});

describe('a text in pieces', () => {
  it('is the text, however it is cut', () =>
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...[...Buffer.from('a\r\r\n\n\u20ac\ufeff'), 0xff, 0xe2, 0xf0]), { maxLength: 40 }),
        fc.integer({ min: 1, max: 9 }),
        (bytes, size) => {
          expect([...textPieces(Buffer.from(bytes), size)].join('')).toBe(asText(Buffer.from(bytes)));
        },
      ),
      { numRuns: 2_000 },
    ));
});

describe('bytes that are gathered', () => {
  it('are what was added, however long it was expected to be', () =>
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 20 })), fc.integer({ min: 0, max: 100 }), (pieces, expected) => {
        const gathered = new Gatherer(expected);
        for (const piece of pieces) gathered.add(piece);
        expect(gathered.whole()).toEqual(Buffer.concat(pieces));
        expect(gathered.bytes).toBe(gathered.whole().length);
      }),
    ));

  it('of the length expected are never moved; of another their room is at most half as much again', () => {
    const known = new Gatherer(1_000);
    const { buffer } = known.whole();
    for (let n = 0; n < 10; n++) known.add(Buffer.alloc(100));
    expect(known.whole().buffer).toBe(buffer);
    const grown = new Gatherer();
    for (let n = 0; n < 1_000; n++) grown.add(Buffer.alloc(100));
    expect(grown.whole().buffer.byteLength).toBeLessThanOrEqual(150_000);
  });
});
