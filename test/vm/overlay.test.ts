import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import { dataDir, type Fixture, guestShell, leftovers, never, openFixture } from './fixture.ts';

let vm: Fixture;
beforeAll(async () => {
  // Its template is kept from run to run, too.
  vm = await openFixture('test-overlay', { dataDir: `${dataDir}-overlays`, overlays: true });
});
afterAll(() => vm?.[Symbol.asyncDispose]());

describe('where no blocks can be shared', () => {
  it('disks are qcow2 overlays, and replicas are what they are elsewhere', async () => {
    expect(vm.area.description).toContain('disks are qcow2 overlays');
    const [one, two] = await Promise.all([vm.replica('leased'), vm.replica('leased')]);
    await guestShell(one, 'echo mine > /home/user/note; sync');
    expect(await guestShell(one, 'cat /home/user/note')).toBe('mine');
    expect(await guestShell(two, 'ls /home/user/note 2>&1; true')).toContain('No such file');
    expect((await two.screenshot(never)).length).toBeGreaterThan(1_000);
    const folder = replicasFolder(vm.area.path, 'test-overlay');
    for (const id of await readdir(folder)) {
      const { blocks } = await stat(path.join(folder, id, 'disk.qcow2'));
      expect(blocks * 512).toBeLessThan(64 * 2 ** 20);
    }
    await Promise.all([one, two].map((replica) => replica.discard()));
    expect(await leftovers(vm.engine)).toEqual([]);
  });

  it('the disk that all read from stays as it was', async () => {
    const { mtimeMs } = await stat(vm.template.diskPath);
    const replica = await vm.replica('leased');
    await guestShell(replica, 'dd if=/dev/zero of=/home/user/large bs=1M count=32 2>/dev/null; sync');
    await replica.discard();
    expect((await stat(vm.template.diskPath)).mtimeMs).toBe(mtimeMs);
  });
});
