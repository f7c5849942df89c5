import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fare } from '../support/neighbours.ts';
import { type Fixture, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-neighbours');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('64 running replicas, of which 8 have a state manager that throws, blocks or leaks', () => {
  // How long their steps take beside them is the benchmark's to say: npm run bench -- neighbours.
  it('the other 56 take each of their steps, as 56 do with none beside them', async () => {
    const { engine, template } = vm;
    const control = await fare(engine, template, { replicas: 56, sick: 0 });
    expect(control).toMatchObject({ succeeded: 56, threw: 0 });
    const beside = await fare(engine, template, { replicas: 64, sick: 8 });
    expect(beside).toMatchObject({ succeeded: 56 });
    expect([control, beside].map(({ stepMs }) => stepMs.length)).toEqual([3 * 56, 3 * 56]);
    // Four are heard by one who throws: at each of five phases, and once they are lost.
    expect(beside.threw).toBeGreaterThanOrEqual(4 * 6);
  });
});
