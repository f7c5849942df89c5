import { expect, it } from 'vitest';
import type { Picture } from '../../runner/qemu/picture.ts';
import { RestingPicture } from '../../runner/replica/resting-picture.ts';

const picture: Picture = { width: 1, height: 1, pixels: Buffer.alloc(3) };

it('a picture at rest is used once, while it is fresh, and not after something was done', () => {
  const resting = new RestingPicture();
  expect(resting.take(0)).toBeNull();
  resting.keep(picture, 100);
  expect(resting.take(101)).toBe(picture);
  expect(resting.take(101)).toBeNull();
  resting.keep(picture, 100);
  expect(resting.take(150)).toBeNull();
  expect(resting.take(101), 'not kept for ever either').toBeNull();
  resting.keep(picture, 100);
  resting.forget();
  expect(resting.take(101)).toBeNull();
});
