import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
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

  it('reaps a runner’s leftovers, half-written records too, and nobody else’s', async () => {
    await takeOwnership(area, record('a', 'one'));
    await takeOwnership(area, record('b', 'two'));
    await mkdir(path.join(replicasFolder(area, 'a'), 'bare'));
    await mkdir(path.join(replicasFolder(area, 'a'), 'cut'));
    await writeFile(path.join(replicasFolder(area, 'a'), 'cut', 'owner.json'), '{"schema": "gymb');
    expect(await reapOwned(area, 'a')).toEqual({ processes: 0, replicas: 3 });
    expect(await readdir(replicasFolder(area, 'a'))).toEqual([]);
    expect((await ownedBy(area, 'b')).records).toHaveLength(1);
    expect(await reapOwned(area, 'a')).toEqual({ processes: 0, replicas: 0 });
    expect(await reapOwned(area, 'never-ran')).toEqual({ processes: 0, replicas: 0 });
  });
});
