import { setTimeout as sleep } from 'node:timers/promises';
import type { RejectedAction } from '../../functions/contract.ts';
import type { ScreenSize } from '../../functions/guest.ts';
import type { Action, InputAction } from '../../schemas/index.ts';
import { ActionRejected, MaybeDelivered, type Replica } from '../replica/contract.ts';
import type { Clock } from './clock.ts';
import { LimitPassed, within } from './limit.ts';

/** What became of one answer's actions. */
export interface Performance {
  /** The `done` or `fail` that ends the episode, where there is one. */
  ending: Extract<Action, { type: 'done' | 'fail' }> | null;
  /** Whether anything was done that may have changed the picture. */
  acted: boolean;
  maybeDelivered: number[];
  rejected: RejectedAction[];
}

/**
 * Sends an answer's actions in order, each at most once: one that may have landed is noted and never repeated.
 * What follows a `done` or `fail`, or does not fit in the step's time, is not sent and said so.
 * @param deadlineMs of the step, on the clock
 * @throws whatever the replica throws beside the two it may answer with; the signal's reason
 */
export async function perform(
  actions: readonly Action[],
  replica: Replica,
  { clock, deadlineMs, screen }: { clock: Clock; deadlineMs: number; screen: ScreenSize },
  signal: AbortSignal,
): Promise<Performance> {
  const done: Performance = { ending: null, acted: false, maybeDelivered: [], rejected: [] };
  for (const [index, action] of actions.entries()) {
    const leftMs = deadlineMs - clock.monotonicMs();
    const refusal = refusalOf(action, { ending: done.ending, leftMs, screen });
    if (refusal !== null) {
      done.rejected.push({ index, message: refusal });
    } else if (action.type === 'done' || action.type === 'fail') {
      done.ending = action;
    } else if (action.type === 'wait') {
      await sleep(action.seconds * 1_000, undefined, { signal });
      done.acted = true;
    } else {
      await send(action, index, replica, leftMs, signal, done);
    }
  }
  return done;
}

async function send(
  action: InputAction,
  index: number,
  replica: Replica,
  leftMs: number,
  signal: AbortSignal,
  done: Performance,
): Promise<void> {
  try {
    await within(leftMs, `action ${action.type}`, signal, (inner) => replica.act(action, inner));
    done.acted = true;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (error instanceof ActionRejected) {
      done.rejected.push({ index, message: error.message });
    } else if (error instanceof MaybeDelivered || error instanceof LimitPassed) {
      done.maybeDelivered.push(index);
      done.acted = true;
    } else {
      throw error;
    }
  }
}

/** Why an action is not to be sent; null when it is. */
function refusalOf(
  action: Action,
  { ending, leftMs, screen }: { ending: Performance['ending']; leftMs: number; screen: ScreenSize },
): string | null {
  if (ending !== null) return `follows ${ending.type}, which ends the episode`;
  // Ending the episode takes no time.
  if (action.type === 'done' || action.type === 'fail') return null;
  if (leftMs <= 0) return "the step's time was over before its turn; answer with fewer actions or raise limits.step_s";
  if (action.type === 'wait' && action.seconds * 1_000 > leftMs) {
    return `waiting ${action.seconds} s does not fit in the ${(leftMs / 1_000).toFixed(1)} s left of the step; wait less or raise limits.step_s`;
  }
  const outside = pointsOf(action).find(([x, y]) => x < 0 || y < 0 || x >= screen.width || y >= screen.height);
  return outside ? `(${outside.join(', ')}) is outside the screen of ${screen.width} x ${screen.height} pixels` : null;
}

function pointsOf(action: Action): readonly (readonly [number, number])[] {
  if (action.type === 'drag') return action.path;
  return 'x' in action ? [[action.x, action.y]] : [];
}
