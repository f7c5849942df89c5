import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ClaimFailed, type Reservation } from '../../runner/replica/contract.ts';
import { qemuProcesses } from '../../runner/replica/host-processes.ts';
import { replicasFolder } from '../../runner/replica/ownership.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { type Fixture, never, openFixture } from './fixture.ts';

const image = 'debian-desktop';
let vm: Fixture;
beforeAll(async () => {
  vm = await openFixture('test-pool');
});
afterAll(() => vm?.[Symbol.asyncDispose]());

const soon = (): AbortSignal => AbortSignal.timeout(90_000);
async function filled(pool: VirtualPool, hot: number): Promise<void> {
  await expect.poll(() => pool.phases().hot ?? 0, { timeout: 90_000 }).toBe(hot);
}
async function reserve(pool: VirtualPool): Promise<Reservation> {
  await pool.waitReady(image, soon());
  const reservation = pool.reserve(image);
  if (!reservation) throw new Error('nothing to reserve although it is ready');
  return reservation;
}

describe('a pool', () => {
  it('fills, hands out, refills and counts who acts', async () => {
    await using pool = await vm.pool({ acting: 2, ready: 2 });
    expect(pool.images).toEqual([{ name: image, digest: vm.image.digest }]);
    expect(pool.reserve(image)).toBeNull();
    expect(pool.reserve('no-such-image')).toBeNull();
    await filled(pool, 2);
    const [one, two] = [pool.reserve(image), pool.reserve(image)];
    expect(one?.image.name).toBe(image);
    expect(pool.reserve(image), 'two may act').toBeNull();
    const replica = await one?.claim(soon());
    expect(replica?.phase).toBe('leased');
    expect((await replica?.screenshot(never))?.length).toBeGreaterThan(1_000);
    await expect(one?.claim(soon())).rejects.toBeInstanceOf(ClaimFailed);

    two?.release();
    two?.release();
    await expect(two?.claim(soon())).rejects.toBeInstanceOf(ClaimFailed);
    await filled(pool, 2);
    expect(pool.reserve(image), 'the released place is free').not.toBeNull();
    expect(pool.reserve(image), 'a leased one still acts').toBeNull();
    await replica?.discard();
    await expect.poll(() => pool.reserve(image) !== null).toBe(true);
    expect(pool.trouble).toBeNull();
  });

  it('reserves the very replica that it drew: each reservation has another', async () => {
    // Each look draws for both, in turns in favour of the one and of the other.
    let draws = 0;
    const draw = (): number => [0.1, 0.9, 0.9, 0.1][draws++ % 4] as number;
    await using pool = await vm.pool({ acting: 2, ready: 2 }, 'test-pool', { draw });
    await filled(pool, 2);
    draws = 0;
    const [one, two] = [pool.reserve(image), pool.reserve(image)];
    const replicas = await Promise.all([one?.claim(soon()), two?.claim(soon())]);
    expect(new Set(replicas.map((replica) => replica?.id)).size).toBe(2);
    expect(replicas.map((replica) => replica?.phase)).toEqual(['leased', 'leased']);
    expect(pool.phases().failed ?? 0).toBe(0);
    await Promise.all(replicas.map((replica) => replica?.discard()));
  });

  it('wakes whoever waits for a ready replica', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1 });
    const replica = await (await reserve(pool)).claim(soon());
    let woken = false;
    const waiting = pool.waitReady(image, soon()).then(() => {
      woken = true;
    });
    await filled(pool, 1);
    expect(woken, 'ready, but none may act').toBe(false);
    await replica.discard();
    await waiting;
    const stop = new AbortController();
    const given = await reserve(pool);
    const hopeless = pool.waitReady(image, stop.signal);
    stop.abort();
    await hopeless;
    given.release();
  });

  it('keeps a replica whose claim was over before it began', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1 });
    await filled(pool, 1);
    const claim = (await reserve(pool)).claim(AbortSignal.abort(new Error('cancelled')));
    await expect(claim).rejects.toThrow('cancelled');
    expect(pool.phases().hot).toBe(1);
    expect(pool.reserve(image), 'its place is free').not.toBeNull();
  });

  it('claims a frozen replica through its gate when no hot one is left', async () => {
    await using pool = await vm.pool({ acting: 2, ready: 0, frozen: 2 });
    await expect.poll(() => pool.phases().frozen ?? 0, { timeout: 60_000 }).toBe(2);
    const replica = await (await reserve(pool)).claim(soon());
    expect(replica.phase).toBe('leased');
    expect(String((await replica.guest.exec({ argv: ['id', '-un'], timeoutMs: 30_000 }, never)).stdout)).toBe('user\n');
    await replica.discard();
  });

  it('takes another replica when the reserved one is dead, and replaces it', async () => {
    await using pool = await vm.pool({ acting: 2, ready: 2 });
    await filled(pool, 2);
    const reservation = pool.reserve(image);
    // Which of its replicas was reserved is not to be seen from here: all of them die.
    const mine = await readdir(replicasFolder(vm.area.path, 'test-pool'));
    const dying = (await qemuProcesses()).filter(({ uuid }) => mine.includes(uuid));
    expect(dying).toHaveLength(2);
    for (const { pid } of dying) process.kill(pid, 'SIGKILL');
    const replica = await reservation?.claim(soon());
    expect(replica?.phase).toBe('leased');
    await replica?.discard();
    await filled(pool, 2);
  });

  it('says what is wrong, backs off, and is well again by itself', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1 });
    await filled(pool, 1);
    // The disk that clones share blocks with is gone for a while.
    const away = `${vm.template.diskPath}.away`;
    await rename(vm.template.diskPath, away);
    try {
      await (await (await reserve(pool)).claim(soon())).discard();
      await expect
        .poll(() => pool.trouble, { timeout: 30_000 })
        .toMatch(/^debian-desktop: .*ENOENT.* \([2-9] in a row\)$/);
    } finally {
      await rename(away, vm.template.diskPath);
    }
    await filled(pool, 1);
    expect(pool.trouble).toBeNull();
  });

  it('makes no replica when the disk is below its floor, and says so', async () => {
    await using pool = await vm.pool({ acting: 1, ready: 1, diskFloorBytes: 2 ** 60 });
    await expect.poll(() => pool.trouble).toMatch(/^disk: \d+\.\d GiB free, floor is 1073741824\.0 GiB$/);
    await sleep(500);
    expect(pool.phases()).toEqual({});
  });

  it('ends everything it made when it is disposed, leased replicas too', async () => {
    const pool = await vm.pool({ acting: 1, ready: 1 });
    const replica = await (await reserve(pool)).claim(soon());
    await pool[Symbol.asyncDispose]();
    expect(replica.lost.aborted).toBe(true);
    expect(pool.phases()).toEqual({});
    expect(pool.reserve(image)).toBeNull();
  });

  it('ends a claim that waits for a replica when it is disposed', async () => {
    const pool = await vm.pool({ acting: 1, ready: 1 });
    await filled(pool, 1);
    const reservation = await reserve(pool);
    const away = `${vm.template.diskPath}.away`;
    await rename(vm.template.diskPath, away);
    try {
      const mine = await readdir(replicasFolder(vm.area.path, 'test-pool'));
      for (const { pid, uuid } of await qemuProcesses()) if (mine.includes(uuid)) process.kill(pid, 'SIGKILL');
      const claim = expect(reservation.claim(soon())).rejects.toThrow('the pool is closed');
      await expect.poll(() => pool.phases(), { timeout: 30_000 }).toEqual({});
      const started = performance.now();
      await pool[Symbol.asyncDispose]();
      await claim;
      expect(performance.now() - started).toBeLessThan(30_000);
    } finally {
      await rename(away, vm.template.diskPath);
      await pool[Symbol.asyncDispose]();
    }
  });
});

describe('two runners on a host', () => {
  it('share templates, and neither touches the other’s replicas', async () => {
    await using one = await vm.pool({ acting: 1, ready: 1 }, 'test-pool-one');
    const mine = await (await reserve(one)).claim(soon());
    {
      await using two = await vm.pool({ acting: 1, ready: 1 }, 'test-pool-two');
      const theirs = await (await reserve(two)).claim(soon());
      const ids = await Promise.all(
        [mine, theirs].map((it) => it.guest.readFile('/etc/machine-id', { maxBytes: 100 }, never)),
      );
      expect(ids[0]?.equals(ids[1] ?? Buffer.alloc(0))).toBe(false);
    }
    expect(mine.lost.aborted).toBe(false);
    expect((await mine.screenshot(never)).length).toBeGreaterThan(1_000);
    await mine.discard();
  });

  it('start by reaping what an earlier one of their name left', async () => {
    const folder = path.join(replicasFolder(vm.area.path, 'test-pool'), randomUUID());
    await mkdir(folder, { recursive: true });
    await using pool = await vm.pool({ acting: 1, ready: 1 });
    await filled(pool, 1);
    await expect(rm(folder, { recursive: true })).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
