import { expect, it } from 'vitest';
import type { ScreenPicture } from '../../runner/qemu/screen.ts';
import { RestingPicture } from '../../runner/replica/resting-picture.ts';

let disposed = 0;
const picture: ScreenPicture = {
  ...{ width: 1, height: 1, pixels: Buffer.alloc(3) },
  [Symbol.dispose]: () => {
    disposed += 1;
  },
};

it('a picture at rest is used once, while it is fresh, and not after something was done', () => {
  const resting = new RestingPicture();
  expect(resting.take(0)).toBeNull();
  resting.keep(picture, 100);
  expect(resting.take(101)).toBe(picture);
  expect(resting.take(101)).toBeNull();
  expect(disposed, 'that is up to who took it').toBe(0);
  resting.keep(picture, 100);
  expect(resting.take(150)).toBeNull();
  expect(disposed).toBe(1);
  expect(resting.take(101), 'not kept for ever either').toBeNull();
  resting.keep(picture, 100);
  resting.keep(picture, 101);
  expect(disposed, 'the one before it').toBe(2);
  resting.forget();
  expect(resting.take(101)).toBeNull();
  expect(disposed).toBe(3);
});
