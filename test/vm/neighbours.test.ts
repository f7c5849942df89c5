import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fare } from '../support/neighbours.ts';
import { type Fixture, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-neighbours');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('64 running replicas, of which 8 have a state manager that throws, blocks or leaks', () => {
  it('the other 56 fare as they do without: none of them fails', async () => {
    const { engine, template } = vm;
    const sick = await fare(engine, template, { replicas: 64, sick: 8 });
    expect(sick.succeeded).toBe(56);
    expect(sick.stepMs).toHaveLength(3 * 56);
  });
});
