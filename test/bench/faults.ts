import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import type { Image } from '../../images/store.ts';
import { readConfig } from '../../runner/host/config.ts';
import { createReplicaPool } from '../../runner/replica/create-pool.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { openArea } from '../../runner/storage/area.ts';
import { GUEST_FAULTS, type GuestFault, prepareFault } from '../support/guest-faults.ts';
import { median, rounded } from './figure.ts';

const ROUNDS = 3;
const FOUND_MS = 240_000;

/**
 * Brings about each fault of a guest in a replica that acts, beside one ready to take its place.
 * @returns lines to print: how long it took until it was known, and from then to the picture of the replica that is next
 */
export async function faultTable(
  image: Image,
  cacheDir: string,
  signal: AbortSignal,
): Promise<Record<string, string>[]> {
  const config = readConfig(process.env);
  await using area = await openArea({ dataDir: config.dataDir, floorBytes: config.diskFloorBytes }, signal);
  await using pool = await createReplicaPool({
    ...{ images: [image], area, runnerId: 'bench-faults', log: pino({ level: 'silent' }), signal },
    settings: { accelerator: config.accelerator, diskFloorBytes: config.diskFloorBytes, cacheDir, acting: 1, ready: 2 },
  });
  const lines: Record<string, string>[] = [];
  for (const fault of GUEST_FAULTS) {
    const rounds: { foundMs: number; mendedMs: number }[] = [];
    for (let round = 0; round < ROUNDS; round += 1) rounds.push(await oneFault(pool, fault, image.name, signal));
    const of = (part: 'foundMs' | 'mendedMs'): string => inSeconds(median(rounds.map((it) => it[part])));
    lines.push({
      fault: fault.name,
      'how it is seen': fault.action,
      detected: of('foundMs'),
      recovered: of('mendedMs'),
    });
    console.error(`${fault.name}: detected after ${of('foundMs')}`);
  }
  return lines;
}

async function oneFault(
  pool: VirtualPool,
  fault: GuestFault,
  imageName: string,
  signal: AbortSignal,
): Promise<{ foundMs: number; mendedMs: number }> {
  const replica = await claim(pool, imageName, signal);
  await prepareFault(replica, fault);
  while ((pool.phases().hot ?? 0) < 2) await sleep(50, undefined, { signal });
  const lost = once(replica.lost, 'abort', { signal: AbortSignal.timeout(FOUND_MS) });
  const broken = performance.now();
  await Promise.all([lost, fault.inject(replica)]);
  const found = performance.now();
  if (!fault.cause.test(replica.cause ?? '')) throw new Error(`${fault.name}: was taken for "${replica.cause}"`);
  await replica.discard();
  await using next = await claim(pool, imageName, signal);
  await next.screenshot(signal);
  return { foundMs: found - broken, mendedMs: performance.now() - found };
}

async function claim(pool: VirtualPool, imageName: string, signal: AbortSignal): Promise<VirtualReplica> {
  await pool.waitReady(imageName, signal);
  const replica = await pool.reserve(imageName)?.claim(signal);
  if (!replica) throw new Error('a replica that was ready is not to be had');
  return replica as VirtualReplica;
}

const inSeconds = (ms: number): string => `${rounded(ms / 1_000)} s`;
