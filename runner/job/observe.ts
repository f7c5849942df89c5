import { setTimeout as sleep } from 'node:timers/promises';
import { longestMs, type Replica, type SettleLimits } from '../replica/contract.ts';
import { LimitPassed, within } from './limit.ts';

/** How one look at the desktop is taken. */
export interface LookSettings {
  settle: SettleLimits;
  /** A picture takes some 0.1 s; a machine that shares its cores with a building template may need ten times that. */
  pictureMs: number;
  /** A read harms nothing when repeated. */
  tries: number;
}

export const LOOK_DEFAULTS = { pictureMs: 10_000, tries: 3 };
const RETRY_PAUSE_MS = 200;

/**
 * Takes a picture, once the desktop stands still where that is asked for. A failed read is tried again.
 * @param settleMs what is left for standing still; when it is over, or none at all, the picture is taken as it is
 * @param onRetry told of each failed read that is tried again
 * @returns PNG
 * @throws the last read's error, LimitPassed, or the signal's reason
 */
export async function takePicture(
  replica: Replica,
  look: LookSettings,
  settleMs: number,
  signal: AbortSignal,
  onRetry: (error: unknown) => void,
): Promise<Buffer> {
  let waits = settleMs > 0;
  for (let tries = 1; ; tries++) {
    try {
      if (waits) {
        await standStill(replica, look, settleMs, signal);
        waits = false;
      }
      return await within(look.pictureMs, 'taking a picture', signal, (inner) => replica.screenshot(inner));
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (tries >= look.tries) throw error;
      onRetry(error);
      // A read that used its whole time has waited enough.
      if (!(error instanceof LimitPassed)) await sleep(RETRY_PAUSE_MS, undefined, { signal });
    }
  }
}

async function standStill(replica: Replica, look: LookSettings, leftMs: number, signal: AbortSignal): Promise<void> {
  const ownMs = longestMs(look.settle.maxMs) + look.pictureMs;
  try {
    await within(Math.min(ownMs, leftMs), 'waiting for the desktop to stand still', signal, (inner) =>
      replica.settle(look.settle, inner),
    );
  } catch (error) {
    if (!(error instanceof LimitPassed) || ownMs <= leftMs) throw error;
  }
}
