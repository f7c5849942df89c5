import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SetupError } from '../../functions/contract.ts';
import { contentTypeOf } from '../../runner/storage/content-type.ts';
import { ObjectDamaged } from '../../runner/storage/errors.ts';
import { inputKey } from '../../runner/storage/inputs.ts';
import { pngSize } from '../../runner/storage/png.ts';
import { samplePng } from '../support/samples.ts';

describe('the key of an input', () => {
  it.each([
    ['a.txt', 'inputs/b/a.txt'],
    ['deep/er/a b (1) ä.txt', 'inputs/b/deep/er/a b (1) ä.txt'],
    ['inputs/b/a.txt', 'inputs/b/a.txt'],
    ['..hidden', 'inputs/b/..hidden'],
  ])('%j is %j', (name, key) => expect(inputKey('b', name)).toBe(key));

  it.each([
    '',
    '.',
    '..',
    '../x',
    'a/../../x',
    'a/./x',
    '/etc/passwd',
    'a//x',
    'a/',
    'inputs/b/',
    'inputs/other/x',
    'inputs/b/../x',
    'a\\..\\x',
    'a\0x',
    'a\nx',
    'x'.repeat(1020),
  ])('%j names none', (name) => {
    expect(() => inputKey('b', name)).toThrow(SetupError);
    expect(() => inputKey('b', name)).toThrow(/only files under inputs\/b\//);
  });

  it('never leaves the folder of the batch', () => {
    const piece = fc.constantFrom('..', '.', 'a', '/', '\\', 'inputs', 'b', '\0', '%2e%2e');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        try {
          const key = inputKey('b', pieces.join(''));
          expect(new URL(`http://x/${key.replaceAll('%', '%25')}`).pathname.startsWith('/inputs/b/')).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(SetupError);
        }
      }),
    );
  });
});

describe('the size of a picture', () => {
  it.each([
    [1, 1],
    [1280, 720],
  ])('%d x %d', (width, height) => expect(pngSize(samplePng(width, height))).toEqual({ width, height }));

  it('is not to be had of a picture cut anywhere, or with something behind it', () => {
    const png = samplePng(8, 8);
    for (let cut = 0; cut < png.byteLength; cut++) {
      expect(() => pngSize(png.subarray(0, cut)), `cut at ${cut}`).toThrow(ObjectDamaged);
    }
    expect(() => pngSize(Buffer.concat([png, Buffer.from('x')]))).toThrow(/truncated/);
  });

  it('is not to be had of something else', () => {
    expect(() => pngSize(Buffer.from('P6 640 480 255\n'))).toThrow(/no PNG: 15 bytes that begin 5036203634302034/);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(() => pngSize(Buffer.from(bytes))).toThrow(ObjectDamaged);
      }),
    );
  });
});

it('the media type of a file is by its name', () => {
  expect(contentTypeOf('step-0001.png')).toBe('image/png');
  expect(contentTypeOf('step-0001.a11y.xml')).toBe('application/xml');
  expect(contentTypeOf('manifest.json')).toBe('application/json');
  expect(contentTypeOf('diagnostics/core')).toBe('application/octet-stream');
});
