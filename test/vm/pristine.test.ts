import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-pristine');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

/** Where a guest may leave something, how it is left and how it is looked for. `$C` is the canary. */
const PLACES: Record<string, { leave: string; look: string; user?: 'root' }> = {
  'home folder': { leave: 'echo $C > ~/Desktop/canary; sync', look: 'cat ~/Desktop/canary' },
  'disk, as root': {
    leave: 'echo $C > /etc/canary; echo $C > /var/canary; sync',
    look: 'cat /etc/canary /var/canary',
    user: 'root',
  },
  'temporary files': { leave: 'echo $C > /tmp/canary', look: 'cat /tmp/canary' },
  'memory file systems': {
    leave: 'echo $C > /run/canary; echo $C > /dev/shm/canary',
    look: 'cat /run/canary /dev/shm/canary',
    user: 'root',
  },
  clipboard: {
    leave: 'for s in primary secondary clipboard; do printf $C | xclip -selection $s; done',
    look: 'for s in primary secondary clipboard; do timeout 5 xclip -o -selection $s; done',
  },
  'X resources': {
    leave: 'echo "canary: $C" | xrdb -merge; xprop -root -f CANARY 8s -set CANARY $C',
    look: 'xrdb -query; xprop -root CANARY',
  },
  'a running program': { leave: 'bash -c "exec -a $C sleep 900" >/dev/null 2>&1 &', look: 'ps ax -o args' },
  'kernel settings and host name': {
    leave: 'echo $C | cut -c1-31 > /proc/sys/kernel/hostname; echo $C > /proc/sys/kernel/core_pattern',
    look: 'cat /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern',
    user: 'root',
  },
  'system log': { leave: 'echo $C > /dev/kmsg; logger $C', look: 'dmesg; journalctl --no-pager -n 200', user: 'root' },
  'machine id': { leave: 'echo $C | tr -d - > /etc/machine-id', look: 'cat /etc/machine-id', user: 'root' },
};

describe('what one replica leaves behind', () => {
  it.each(Object.entries(PLACES))('%s: is not seen by one made before, nor by one made after it', async (_, place) => {
    const canary = randomUUID();
    const before = await vm.replica('hot');
    const one = await vm.replica('leased');
    await run(one, `C=${canary}; ${place.leave}`, place.user);
    expect(await run(one, place.look, place.user)).toMatch(traceOf(canary));
    await before.lease(never);
    expect(await run(before, place.look, place.user)).not.toMatch(traceOf(canary));
    await one.discard();
    const after = await vm.replica('leased');
    expect(await run(after, place.look, place.user)).not.toMatch(traceOf(canary));
    await Promise.all([before, after].map((replica) => replica.discard()));
  });

  it('the helper’s channel: what was asked of one and not answered comes from no other', async () => {
    const canary = randomUUID();
    const one = await vm.replica('leased');
    const asked = one.guest.exec({ argv: ['sh', '-c', `sleep 2; echo ${canary}`], timeoutMs: 60_000 }, never);
    const lost = expect(asked).rejects.toMatchObject({ name: 'GuestSilent' });
    await one.discard();
    await lost;
    const after = await vm.replica('leased');
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        after.guest.exec({ argv: ['sh', '-c', `sleep 0.5; echo ${n}`], timeoutMs: 60_000 }, never),
      ),
    );
    expect(answers.map(({ stdout }) => stdout.toString())).toEqual(Array.from({ length: 8 }, (_, n) => `${n}\n`));
    await after.discard();
  });

  it('nothing of it is in the template that all are cloned from', async () => {
    const canary = randomUUID();
    const one = await vm.replica('leased');
    await run(one, `echo ${canary} > ~/canary; sync; echo ${canary} > /dev/shm/canary`);
    await one.discard();
    for (const file of [vm.template.memoryPath, vm.template.statePath, vm.template.diskPath]) {
      expect(await holds(file, canary)).toBe(false);
    }
  });
});

/** A canary may have lost its dashes or its end on the way. */
const traceOf = (canary: string): RegExp => new RegExp(`${canary.slice(0, 23)}|${canary.replaceAll('-', '')}`);

/** What a command prints, its failures included: a file that is not there is no canary. */
function run(replica: VirtualReplica, script: string, user?: 'root'): Promise<string> {
  return guestShell(replica, `{ ${script}\n} 2>&1; true`, user ?? 'user');
}

async function holds(file: string, text: string): Promise<boolean> {
  let tail = '';
  for await (const chunk of createReadStream(file, { highWaterMark: 8 * 2 ** 20, encoding: 'latin1' })) {
    if (`${tail}${chunk}`.includes(text)) return true;
    tail = (chunk as string).slice(-text.length);
  }
  return false;
}
