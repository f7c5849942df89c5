import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Image } from '../../images/store.ts';
import type { VirtualPool } from '../../runner/replica/pool.ts';
import { GUEST_FAULTS, type GuestFault, prepareFault } from '../support/guest-faults.ts';
import { median, rounded } from './figure.ts';
import { claimNext, openBenchPool } from './pools.ts';

const ROUNDS = 3;
const FOUND_MS = 240_000;

/**
 * Brings about each fault of a guest in a replica that acts, beside one ready to take its place.
 * @returns lines to print: how long it took until it was known, and from then to the picture of the replica that is next
 */
export async function faultTable(image: Image, signal: AbortSignal): Promise<Record<string, string>[]> {
  await using bench = await openBenchPool(image, 'bench-faults', { acting: 1, ready: 2 }, signal);
  const { pool } = bench;
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
  const replica = await claimNext(pool, imageName, signal);
  await prepareFault(replica, fault);
  while ((pool.phases().hot ?? 0) < 2) await sleep(50, undefined, { signal });
  const lost = once(replica.lost, 'abort', { signal: AbortSignal.timeout(FOUND_MS) });
  const broken = performance.now();
  await Promise.all([lost, fault.inject(replica)]);
  const found = performance.now();
  if (!fault.cause.test(replica.cause ?? '')) throw new Error(`${fault.name}: was taken for "${replica.cause}"`);
  await replica.discard();
  await using next = await claimNext(pool, imageName, signal);
  await next.screenshot(signal);
  return { foundMs: found - broken, mendedMs: performance.now() - found };
}

const inSeconds = (ms: number): string => `${rounded(ms / 1_000)} s`;
