import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contentTypeOf } from '../../runner/storage/content-type.ts';
import { ObjectDamaged } from '../../runner/storage/errors.ts';
import { pngSize } from '../../runner/storage/png.ts';
import { samplePng } from '../support/samples.ts';

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
