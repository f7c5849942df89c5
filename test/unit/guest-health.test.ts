import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  APPLICATION_PATIENCE_MS,
  type HealthReport,
  judgeHealth,
  type Suspicions,
  UNSUSPECTED,
  X_PATIENCE_MS,
} from '../../runner/replica/guest-health.ts';
import { nameSamples, parseRegisters } from '../../runner/replica/guest-silence.ts';

type Window = HealthReport['windows'][number];
const answering = (id = 1): Window => ({ id, answered: true, class: '', title: '', ticks: null });
const silent = (ticks: number | null, id = 1): Window => ({
  id,
  answered: false,
  class: 'App',
  title: 'a file',
  ticks,
});
const report = (...windows: Window[]): HealthReport => ({ x_answers: true, windows });
const noX: HealthReport = { x_answers: false, windows: [] };

/** Looks at so many seconds each. @returns the first fault, with the second it was certain */
function watch(looks: readonly [second: number, HealthReport][]): [number, string] | null {
  let suspicions: Suspicions = UNSUSPECTED;
  for (const [second, look] of looks) {
    const judged = judgeHealth(suspicions, look, second * 1_000);
    if (judged.fault !== null) return [second, judged.fault];
    suspicions = judged.suspicions;
  }
  return null;
}

describe('the health of a guest', () => {
  it('an application that answered, and then neither answers nor works, hangs', () => {
    const looks: [number, HealthReport][] = [
      [0, report(answering())],
      [8, report(silent(40))],
      [16, report(silent(40))],
      [24, report(silent(41))],
      [32, report(silent(41))],
    ];
    expect(watch(looks)).toEqual([32, 'the application App (a file) hangs: no answer and no work for 24 s']);
  });

  it('one that works does not, for however long it gives no answer', () => {
    const looks = Array.from({ length: 50 }, (_, n): [number, HealthReport] => [
      n * 8,
      report(n === 0 ? answering() : silent(n * 100)),
    ]);
    expect(watch(looks)).toBeNull();
  });

  it('nor one that never answered: it may know no pings, whatever it says', () => {
    expect(watch(Array.from({ length: 50 }, (_, n) => [n * 8, report(silent(7))]))).toBeNull();
  });

  it('an answer clears it, and a window that is gone is forgotten', () => {
    const looks: [number, HealthReport][] = [
      [0, report(answering())],
      [8, report(silent(1))],
      [24, report(answering())],
      [32, report(silent(1))],
      [48, report(silent(1))],
      [56, report()],
      [64, report(silent(1))],
      [90, report(silent(1))],
    ];
    expect(watch(looks)).toBeNull();
  });

  it('an X server hangs that gives no answer at two looks, and at none between', () => {
    expect(
      watch([
        [0, noX],
        [14, noX],
      ]),
    ).toEqual([14, 'the X server hangs: no answer for 14 s']);
    expect(
      watch([
        [0, noX],
        [8, report()],
        [16, noX],
        [20, noX],
      ]),
    ).toBeNull();
  });

  it('is never in doubt before the patience is over, whatever is seen', () => {
    const anyReport = fc.oneof(
      fc.constant(noX),
      fc
        .array(fc.oneof(fc.constant(answering(1)), fc.constant(silent(3, 1)), fc.constant(silent(3, 2))))
        .map((all) => report(...all)),
    );
    const least = Math.min(APPLICATION_PATIENCE_MS, X_PATIENCE_MS) / 1_000;
    fc.assert(
      fc.property(
        fc.array(anyReport, { maxLength: 20 }),
        (reports) => watch(reports.map((look, n) => [(n * (least - 0.1)) / 20, look])) === null,
      ),
    );
  });
});

describe('a silent guest', () => {
  const registers = (level: number, halted: boolean, at = 'ffffffff81c0ab5e') =>
    `CPU#0\r\nRAX=0000000000000000 RBX=ffffffff82a13f80\r\nRIP=${at} RFL=00000246 [---Z-P-] CPL=${level} II=0 A20=1 SMM=0 HLT=${Number(halted)}\r\nES =0000 0000000000000000 ffffffff 00c00000\r\n`;
  const samples = (...texts: string[]) => texts.flatMap(parseRegisters);

  it('is named by what its processor does', () => {
    expect(nameSamples(samples(registers(0, false), registers(0, false)))).toBe(
      'the guest is silent: soft lockup, its kernel keeps the processor (at ffffffff81c0ab5e)',
    );
    expect(nameSamples(samples(registers(3, false), registers(3, false)))).toBe(
      'the guest is silent: a program keeps its processor from all others',
    );
    expect(nameSamples(samples(registers(0, true), registers(0, true)))).toBe(
      'the guest is silent: its processor sleeps, and nothing wakes it',
    );
    expect(nameSamples(samples(registers(0, false), registers(3, false), registers(0, true)))).toBe(
      'the guest is silent, though its processor works',
    );
    expect(nameSamples([])).toBe('the guest is silent');
  });

  it('whatever stands for registers is read once, and not again and again', () => {
    const odd = `RIP=0 ${'CPL=0 '.repeat(200_000)}\nRIP=${'0'.repeat(200_000)} CPL=0 HLT=0`;
    expect(parseRegisters(odd)).toEqual([]);
    expect(parseRegisters(`${odd}\n${registers(0, false)}`)).toEqual([]);
  }, 2_000);

  it('every processor of several is looked at', () => {
    expect(parseRegisters(registers(0, false, 'ffffffff81000000') + registers(3, true, '00007f0000000000'))).toEqual([
      { at: 'ffffffff81000000', level: 0, halted: false },
      { at: '00007f0000000000', level: 3, halted: true },
    ]);
  });
});
