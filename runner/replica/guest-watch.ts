import { setTimeout as sleep } from 'node:timers/promises';
import { HelperError, QmpSilent } from '../qemu/errors.ts';
import { NONSENSE } from '../qemu/helper.ts';
import type { Machine } from '../qemu/machine.ts';
import { HealthReport, judgeHealth, type Suspicions, UNSUSPECTED } from './guest-health.ts';
import { nameSilence, SILENT_QEMU } from './guest-silence.ts';

/** A look costs a guest some 20 ms of its processor. */
const LOOK_EVERY_MS = 8_000;
/** The helper itself takes up to 6 s when nothing in the desktop answers. Its reader goes before all else that runs in a guest. */
const SILENCE_MS = 15_000;
/** On a host with many times more to do than it can. */
const LONGEST_SILENCE_MS = 6 * SILENCE_MS;

/**
 * Watches a guest while an attempt plays in it, for what it cannot tell by itself: an application, the X server, the helper or the kernel
 * that hangs. What ends or breaks (a panic, a dead helper, no more memory) is told by QEMU or by the helper, the moment it happens.
 * Resolves with the fault in words; with null when the signal is aborted first, or the machine is gone. Never rejects.
 */
export async function watchGuest(machine: Machine, signal: AbortSignal): Promise<string | null> {
  const either = AbortSignal.any([signal, machine.lost]);
  const clock = new GuestClock(machine);
  let suspicions: Suspicions = UNSUSPECTED;
  try {
    for (;;) {
      await sleep(LOOK_EVERY_MS, undefined, { signal: either, ref: false });
      const report = await look(machine, clock, either);
      if (report === 'silent') return await nameSilence(machine, either);
      if (report === 'refused') continue;
      if (report === 'nonsense') return 'the helper in the guest answers what no helper does';
      const judged = judgeHealth(suspicions, report, await clock.nowMs());
      if (judged.fault !== null) return judged.fault;
      suspicions = judged.suspicions;
    }
  } catch (error) {
    // Else aborted, or the machine is gone, which is told elsewhere.
    return error instanceof QmpSilent && !either.aborted ? SILENT_QEMU : null;
  }
}

/** @returns `silent` when the helper is for longer than it may be, in the guest's own time; `refused` when it has too much to do,
 * `nonsense` for an answer that is none */
async function look(
  machine: Machine,
  clock: GuestClock,
  signal: AbortSignal,
): Promise<HealthReport | 'silent' | 'refused' | 'nonsense'> {
  const askedMs = await clock.nowMs();
  const asked = performance.now();
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  const impatience = (async () => {
    for (;;) {
      await sleep(1_000, undefined, { signal: either, ref: false });
      const waitedMs = (await clock.nowMs()) - askedMs;
      if (waitedMs > SILENCE_MS || performance.now() - asked > LONGEST_SILENCE_MS) silent.abort();
    }
    // Over when the look is, and when QEMU cannot be asked for the time.
  })().catch(() => silent.abort());
  try {
    return await machine.helper.call('health', {}, HealthReport, {
      deadlineMs: 2 * LONGEST_SILENCE_MS,
      signal: either,
    });
  } catch (error) {
    signal.throwIfAborted();
    if (silent.signal.aborted) return 'silent';
    if (error instanceof HelperError) return error.code === NONSENSE ? 'nonsense' : 'refused';
    throw error;
  } finally {
    silent.abort();
    await impatience;
  }
}

/** Time as it passes for a guest: without what its processors wait for their turn on a busy host. */
class GuestClock {
  readonly #machine: Machine;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  async nowMs(): Promise<number> {
    return performance.now() - ((await this.#machine.processors.load())?.waitedMs ?? 0);
  }
}
