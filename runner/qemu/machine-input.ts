import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { GuestSilent } from '../../functions/guest.ts';
import { HelperError } from './errors.ts';
import type { HelperClient } from './helper.ts';
import type { InputPort } from './input.ts';
import { Patience } from './patience.ts';
import type { Processors } from './processors.ts';
import type { QmpClient } from './qmp.ts';
import { quietFor } from './quiet.ts';

const SEND_DEADLINE_MS = 5_000;
/** A guest answers in milliseconds; one that is busy to the last cycle of emulation, in seconds. */
const BARRIER_DEADLINE_MS = 10_000;
/** Of typing through the helper: what a starved guest may take to begin, and for each character. */
const TYPE_BASE_MS = 15_000;
const TYPE_PER_CHARACTER_MS = 100;
const SIDEWAYS_DEADLINE_MS = 20_000;

const Input = z.object({ unread: z.number() });
/** While a program draws what was typed, the display server may wait for its turn. */
const UNREAD_POLL_MS = 5;

/**
 * Waits until the display server has read every input device to its end: its buffers are small, and what overflows is lost.
 * @throws GuestSilent, also when the server does not read
 */
async function awaitRead(helper: HelperClient, signal: AbortSignal): Promise<void> {
  const end = performance.now() + BARRIER_DEADLINE_MS;
  for (;;) {
    const { unread } = await helper
      .call('input', {}, Input, { deadlineMs: BARRIER_DEADLINE_MS, signal })
      .catch(toldNothing);
    if (unread === 0) return;
    if (performance.now() > end) {
      throw new GuestSilent(`the guest's display server read no input within ${BARRIER_DEADLINE_MS} ms`);
    }
    await sleep(UNREAD_POLL_MS, undefined, { signal });
  }
}

/** A helper that knows no display server answers all the same: its guest has run since the input came. */
function toldNothing(error: unknown): z.infer<typeof Input> {
  if (error instanceof HelperError && error.code === 'ENOSYS') return { unread: 0 };
  throw error;
}

/** Input through QEMU's devices, with the helper for what they cannot do. */
export function machineInput(qmp: QmpClient, helper: HelperClient, processors: Processors): InputPort {
  return {
    send: async (events, signal) => {
      await qmp.execute('input-send-event', { events }, { deadlineMs: SEND_DEADLINE_MS, signal });
    },
    barrier: (signal) => awaitRead(helper, signal),
    typeText: async (text, signal) => {
      const deadlineMs = TYPE_BASE_MS + TYPE_PER_CHARACTER_MS * text.length;
      await helper.call('type_text', { text }, z.unknown(), { deadlineMs, signal });
    },
    rest: async ({ quietMs, maxMs }, signal) => {
      await quietFor(processors, quietMs, await Patience.begin(processors, maxMs), signal);
    },
    scrollSideways: async (notches, signal) => {
      // X numbers the wheel's sideways notches as buttons 6 and 7.
      const argv = ['xdotool', 'click', '--repeat', String(Math.abs(notches)), '--delay', '0', notches > 0 ? '7' : '6'];
      const reply = await helper.call(
        'exec',
        { argv, user: 'user', timeout_s: SIDEWAYS_DEADLINE_MS / 2_000 },
        z.object({ returncode: z.number() }),
        { deadlineMs: SIDEWAYS_DEADLINE_MS, signal },
      );
      if (reply.returncode !== 0) throw new HelperError('EIO', `xdotool ended with ${reply.returncode}`);
    },
  };
}
