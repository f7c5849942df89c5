import { z } from 'zod';
import { HelperError } from './errors.ts';
import type { HelperClient } from './helper.ts';
import type { InputPort } from './input.ts';
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
/** Answering a motion takes some milliseconds of work; a guest that is busy with other things is not waited for. */
const REST_MS = 50;
const REST_MAX_MS = 3_000;

/** Input through QEMU's devices, with the helper for what they cannot do. */
export function machineInput(qmp: QmpClient, helper: HelperClient, processors: Processors): InputPort {
  return {
    send: async (events, signal) => {
      await qmp.execute('input-send-event', { events }, { deadlineMs: SEND_DEADLINE_MS, signal });
    },
    barrier: (signal) => helper.ping(BARRIER_DEADLINE_MS, signal),
    typeText: async (text, signal) => {
      const deadlineMs = TYPE_BASE_MS + TYPE_PER_CHARACTER_MS * text.length;
      await helper.call('type_text', { text }, z.unknown(), { deadlineMs, signal });
    },
    rest: async (signal) => {
      await quietFor(processors, REST_MS, REST_MAX_MS, signal);
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
