import { expect, it } from 'vitest';
import { scratch } from '../../runner/qemu/scratch.ts';

it('a large buffer is used again, by one at a time, and only for its own size', () => {
  const first = scratch.take(1_000);
  expect(first).toHaveLength(1_000);
  expect(scratch.take(1_000)).not.toBe(first);
  scratch.give(first);
  expect(scratch.take(999)).toHaveLength(999);
  expect(scratch.take(1_000)).toBe(first);
  expect(scratch.take(1_000)).not.toBe(first);
});

it('no more are kept than are in work at once', () => {
  const many = Array.from({ length: 40 }, () => scratch.take(2_000));
  for (const buffer of many) scratch.give(buffer);
  const again = new Set(Array.from({ length: 40 }, () => scratch.take(2_000)));
  expect(again.size).toBe(40);
  expect([...again].filter((buffer) => many.includes(buffer))).toHaveLength(16);
});
