import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  IdentityTaken,
  identityHolder,
  type OwnerRecord,
  ownedBy,
  releaseOwnership,
  replicasFolder,
  takeOwnership,
} from '../../runner/replica/ownership.ts';
import { reapOwned } from '../../runner/replica/reap.ts';

let area: string;
beforeEach(async () => {
  area = await mkdtemp(path.join(tmpdir(), 'gymbus-area-'));
});
afterEach(() => rm(area, { recursive: true }));

const record = (runner: string, id: string, machineId = `${id}0000`): OwnerRecord => ({
  schema: 'gymbus.owner.v1',
  runner,
  id,
  uuid: `uuid-of-${id}`,
  machine_id: machineId,
  run_folder: path.join(area, 'run', id),
  cgroups: [],
  ticks: 1,
});

describe('ownership', () => {
  it('puts a replica on record before anything is made, and takes everything away with it', async () => {
    const mine = record('a', 'one');
    const folder = await takeOwnership(area, mine);
    await mkdir(mine.run_folder, { recursive: true });
    await writeFile(path.join(folder, 'disk.raw'), 'x');
    expect((await ownedBy(area, 'a')).records).toEqual([mine]);
    expect(await identityHolder(area, mine.machine_id)).toBe('one');
    await releaseOwnership(area, mine);
    await releaseOwnership(area, mine);
    expect(await readdir(replicasFolder(area, 'a'))).toEqual([]);
    expect(await identityHolder(area, mine.machine_id)).toBeNull();
    expect(await readdir(path.join(area, 'run'))).toEqual([]);
  });

  it('gives a machine id to one replica of the host only, whichever runner’s', async () => {
    await takeOwnership(area, record('a', 'one', 'same'));
    const second = takeOwnership(area, record('b', 'two', 'same'));
    await expect(second).rejects.toBeInstanceOf(IdentityTaken);
    await expect(second).rejects.toThrow('machine id same belongs to one');
    expect((await ownedBy(area, 'b')).records).toEqual([]);
    await releaseOwnership(area, record('b', 'two', 'same'));
    expect(await identityHolder(area, 'same')).toBe('one');
  });

  it('leaves nothing of a replica that could not be put on record whole', async () => {
    const mine = record('a', 'one');
    await writeFile(path.join(area, 'identities'), 'in the way');
    await expect(takeOwnership(area, mine)).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readdir(replicasFolder(area, 'a'))).toEqual([]);
    await rm(path.join(area, 'identities'));
    const folder = await takeOwnership(area, mine);
    expect(await readdir(folder)).toEqual(['owner.json']);
    await releaseOwnership(area, mine);
  });

  it.skipIf(process.getuid?.() !== 0)(
    'leaves nothing on a disk that is full, wherever that is noticed, and says so',
    async () => {
      const small = path.join(area, 'small');
      await mkdir(small);
      await execa('mount', ['-t', 'tmpfs', '-o', 'nr_inodes=32', 'gymbus-test', small]);
      try {
        const ends = new Set<string>();
        for (const folder of [replicasFolder(small, 'a'), path.join(small, 'identities')]) {
          await mkdir(folder, { recursive: true });
        }
        const fill = async (n: number): Promise<void> => writeFile(path.join(small, `fill-${n}`), '');
        let filled = 0;
        while (
          await fill(filled).then(
            () => true,
            () => false,
          )
        )
          filled += 1;
        for (let room = 0; room < 5; room += 1) {
          const mine = { ...record('a', 'one'), run_folder: path.join(small, 'run') };
          const end = await takeOwnership(small, mine).then(
            () => 'taken',
            (error: Error) => error.name,
          );
          ends.add(end);
          if (end === 'taken') await releaseOwnership(small, mine);
          expect(await readdir(replicasFolder(small, 'a')), `with room for ${room}`).toEqual([]);
          expect(await readdir(path.join(small, 'identities')), `with room for ${room}`).toEqual([]);
          filled -= 1;
          await rm(path.join(small, `fill-${filled}`));
        }
        expect([...ends]).toEqual(['StorageFull', 'taken']);
      } finally {
        await execa('umount', [small]);
      }
    },
  );

  it('refuses to take twice what is taken, and leaves it as it is', async () => {
    const mine = record('a', 'one');
    await takeOwnership(area, mine);
    await expect(takeOwnership(area, mine)).rejects.toMatchObject({ code: 'EEXIST' });
    expect((await ownedBy(area, 'a')).records).toEqual([mine]);
    expect(await identityHolder(area, mine.machine_id)).toBe('one');
  });

  it('reaps a runner’s leftovers, half-written records too, and nobody else’s', async () => {
    await takeOwnership(area, record('a', 'one'));
    await takeOwnership(area, record('b', 'two'));
    await mkdir(path.join(replicasFolder(area, 'a'), 'bare'));
    await mkdir(path.join(replicasFolder(area, 'a'), 'cut'));
    await writeFile(path.join(replicasFolder(area, 'a'), 'cut', 'owner.json'), '{"schema": "gymb');
    expect(await reapOwned(area, 'a')).toEqual({ processes: 0, replicas: 3, resisted: [] });
    expect(await readdir(replicasFolder(area, 'a'))).toEqual([]);
    expect((await ownedBy(area, 'b')).records).toHaveLength(1);
    expect(await reapOwned(area, 'a')).toEqual({ processes: 0, replicas: 0, resisted: [] });
    expect(await reapOwned(area, 'never-ran')).toEqual({ processes: 0, replicas: 0, resisted: [] });
  });
});
