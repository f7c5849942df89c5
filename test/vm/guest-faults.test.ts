import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { GUEST_FAULTS } from '../support/guest-faults.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

/** The slowest to be found is a hung application; then what a starved host adds. */
const FOUND_MS = 240_000;

let vm: Fixture;
let neighbour: VirtualReplica;
beforeAll(async () => {
  vm = await openFixture('test-guest-faults');
  neighbour = await vm.replica('leased');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('a fault of the guest', () => {
  it.concurrent.each(GUEST_FAULTS)(
    '$name: is named as the cause, with the console and a picture',
    async (fault) => {
      await using replica = await vm.replica('leased');
      await openEditor(replica);
      const found = once(replica.lost, 'abort', { signal: AbortSignal.timeout(FOUND_MS) });
      await fault.inject(replica);
      await found;
      expect(replica.phase).toBe('failed');
      expect(replica.cause).toMatch(fault.cause);
      const { serialLog, lastPicture, cause } = await replica.diagnostics();
      expect(cause).toBe(replica.cause);
      expect(lastPicture?.length).toBeGreaterThan(1_000);
      // What is told by the helper is on the console, too, with what the kernel said.
      if (fault.action === 'told by the helper') expect(serialLog.toString()).toContain(`gymbus-helper: ${cause}`);
      expect((await neighbour.screenshot(never)).length).toBeGreaterThan(1_000);
      expect(neighbour.lost.aborted).toBe(false);
    },
    FOUND_MS + 60_000,
  );

  it('is that of one replica alone: a neighbour of all of them plays on', async () => {
    expect(neighbour.cause).toBeNull();
    expect((await neighbour.screenshot(never)).length).toBeGreaterThan(1_000);
  });

  it('is none while applications work: one that is busy is not said to hang', async () => {
    await using replica = await vm.replica('leased');
    await openEditor(replica);
    // Three looks and more: it works all the time and answers nobody.
    await replica.guest.spawn({ argv: ['sh', '-c', BUSY_WINDOW] }, never);
    await new Promise((resolve) => setTimeout(resolve, 45_000));
    expect(replica.cause).toBeNull();
    expect(replica.phase).toBe('leased');
  }, 120_000);
});

/** Shows a window, answers pings once, then computes for a minute without a look at its events. */
const BUSY_WINDOW = `exec python3 -c '
import time, tkinter
root = tkinter.Tk()
root.title("busy")
def compute():
    end = time.monotonic() + 60
    while time.monotonic() < end: pass
root.after(12_000, compute)
root.mainloop()
'`;

/** An application with a window, that has answered a look at it. */
async function openEditor(replica: VirtualReplica): Promise<void> {
  await replica.guest.spawn({ argv: ['mousepad'] }, never);
  await replica.settle({ minMs: 500, maxMs: 20_000 }, never);
  await replica.screenshot(never);
}
