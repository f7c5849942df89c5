import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CALM, type PressureState, type Shortage, underPressure } from '../../runner/replica/pressure.ts';

const gib = 2 ** 30;
const fine: Shortage = {
  acting: 2,
  ...{ memoryBytes: 8 * gib, memoryFloorBytes: gib, diskBytes: 50 * gib, diskFloorBytes: 2 * gib },
  pressure: { some: 0, full: 0 },
};
const following = (looks: Partial<Shortage>[], from: PressureState = CALM): PressureState =>
  looks.reduce<PressureState>((state, look) => underPressure(state, { ...fine, ...look }), from);
const times = (count: number, look: Partial<Shortage>): Partial<Shortage>[] =>
  Array.from({ length: count }, () => look);

describe('under pressure', () => {
  it.each([
    [{ memoryBytes: 0.8 * gib }, 'memory: 0.8 GiB free, floor is 1.0 GiB'],
    [{ pressure: { some: 12, full: 0 } }, 'memory: tasks stalled 12 % of the last 10 s'],
    [{ pressure: { some: 12, full: 6 } }, 'memory: all tasks stalled 6 % of the last 10 s'],
  ])('first shrinks, then stops pulling: %j', (look, reason) => {
    expect(following([look])).toMatchObject({ keep: 0.5, holding: null, reason });
    expect(following(times(4, look))).toMatchObject({ keep: 0, holding: null });
    expect(following(times(5, look))).toMatchObject({ keep: 0, holding: reason });
  });

  it('stops pulling at once when the disk is short, and gives up nothing for it', () => {
    expect(following([{ diskBytes: gib }])).toMatchObject({ keep: 1, holding: 'disk: 1.0 GiB free, floor is 2.0 GiB' });
  });

  it('uses no account of pressure where there is none', () => {
    expect(following([{ pressure: null }])).toEqual({ ...CALM, calm: 1 });
  });

  it('recovers by itself: pulling first, then the pool in parts, and only when there is clearly enough', () => {
    const short = following(times(6, { memoryBytes: 0.5 * gib }));
    expect(following(times(50, { memoryBytes: 1.1 * gib }), short)).toMatchObject({ keep: 0, holding: short.holding });
    expect(following(times(50, { pressure: { some: 6, full: 0 } }), short)).toMatchObject({ holding: short.holding });
    const pulling = following(times(5, {}), short);
    expect(pulling).toMatchObject({ keep: 0, holding: null });
    expect(following(times(5, {}), pulling)).toMatchObject({ keep: 0.25 });
    expect(following(times(20, {}), pulling)).toMatchObject({ keep: 1, reason: null });
    const full = following([{ diskBytes: gib }]);
    expect(following(times(50, { diskBytes: 2.2 * gib }), full).holding).toBe(full.holding);
    expect(following(times(5, {}), full).holding).toBeNull();
  });

  it('pulls again at the floor where all is given up and nothing acts: such a host has no more to hope for', () => {
    const short = following(times(6, { memoryBytes: 0.5 * gib }));
    const small = { memoryBytes: 1.1 * gib, acting: 0 };
    expect(following(times(5, small), short)).toMatchObject({ keep: 0, holding: null });
  });

  it('always comes back when the shortage is over, and never keeps more while it lasts', () => {
    const look = fc.record({
      memoryBytes: fc.constantFrom(0.5, 1.1, 8).map((n) => n * gib),
      diskBytes: fc.constantFrom(1, 2.2, 50).map((n) => n * gib),
      pressure: fc.constantFrom(null, { some: 0, full: 0 }, { some: 6, full: 2 }, { some: 30, full: 9 }),
    });
    fc.assert(
      fc.property(fc.array(look, { maxLength: 40 }), (looks) => {
        let state = CALM;
        for (const one of looks) {
          const next = underPressure(state, { ...fine, ...one });
          if (one.memoryBytes < gib) expect(next.keep).toBeLessThanOrEqual(state.keep);
          state = next;
        }
        expect(following(times(40, {}), state)).toMatchObject({ keep: 1, holding: null, reason: null });
      }),
    );
  });
});
