import { expect, it } from 'vitest';
import { Rate } from '../../../runner/cli/rate.ts';

it('knows nothing before a second has passed', () => {
  const rate = new Rate();
  expect(rate.text()).toBe('');
  rate.add(0, 0);
  rate.add(3, 999);
  expect(rate.perMinute()).toBeNull();
  rate.add(3, 1_000);
  expect(rate.perMinute()).toBe(180);
  expect(rate.text()).toBe('180/min');
});

it('forgets what is older than a minute', () => {
  const rate = new Rate();
  rate.add(0, 0);
  rate.add(600, 30_000);
  for (let second = 31; second <= 120; second++) rate.add(600, second * 1_000);
  expect(rate.perMinute()).toBe(0);
  expect(rate.text()).toBe('0.0/min');
});

it('counts from the start when what was there before is among it', () => {
  const rate = new Rate();
  rate.add(100, 0);
  rate.add(104, 60_000);
  expect(rate.text()).toBe('4.0/min');
});
