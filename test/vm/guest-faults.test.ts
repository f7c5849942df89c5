import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HealthReport } from '../../runner/replica/guest-health.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { GUEST_FAULTS, prepareFault } from '../support/guest-faults.ts';
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
      await prepareFault(replica, fault);
      const found = once(replica.lost, 'abort', { signal: AbortSignal.timeout(FOUND_MS) });
      await fault.inject(replica);
      await found;
      expect(replica.phase).toBe('failed');
      expect(replica.cause).toMatch(fault.cause);
      expect(replica.lost.reason).toMatchObject({ name: 'ReplicaLost', byHost: false, found: !fault.kills });
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

  it('is none while applications work: one that is busy, and answers nobody, is not said to hang', async () => {
    await using replica = await vm.replica('leased');
    await replica.guest.spawn({ argv: ['python3', '-c', BUSY_WINDOW] }, never);
    // Two looks while it answers, then four while it does not.
    await sleep(50_000);
    const { windows } = await replica.machine.helper.call('health', {}, HealthReport, { deadlineMs: 30_000 });
    const busy = windows.find(({ title }) => title === 'busy');
    expect(busy).toMatchObject({ answered: false, title: 'busy' });
    expect(busy?.ticks).toBeGreaterThan(1_000);
    expect(replica.cause).toBeNull();
    expect(replica.phase).toBe('leased');
  }, 120_000);
});

/** A window whose program answers pings for a while, and then works without a look at what comes. */
const BUSY_WINDOW = `
import os, time
from Xlib import X, Xatom, display
screen = display.Display(':0')
root = screen.screen().root
window = root.create_window(100, 100, 300, 200, 0, X.CopyFromParent, event_mask=X.ExposureMask)
atom = screen.intern_atom
window.change_property(atom('_NET_WM_NAME'), atom('UTF8_STRING'), 8, b'busy')
window.change_property(atom('_NET_WM_PID'), Xatom.CARDINAL, 32, [os.getpid()])
window.set_wm_protocols([atom('_NET_WM_PING')])
window.set_wm_class('busy', 'Busy')
window.map()
screen.flush()
end = time.monotonic() + 20
while time.monotonic() < end:
    while screen.pending_events():
        event = screen.next_event()
        if event.type & 0x7f == X.ClientMessage:
            event.window = root
            root.send_event(event, event_mask=X.SubstructureNotifyMask | X.SubstructureRedirectMask)
            screen.flush()
    time.sleep(0.1)
while True: pass
`;
