import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '../../runner/replica/engine.ts';
import { reapOwned } from '../../runner/replica/reap.ts';
import { VirtualReplica } from '../../runner/replica/replica.ts';
import { leftovers, never, openFixture } from './fixture.ts';

/**
 * A runner's replicas in a process of its own, for a test that kills it: reaps what the one before it left, says what is left all the same,
 * then makes and discards replicas until it is killed.
 */
const [runnerId, standIn] = process.argv.slice(2);
if (!runnerId) throw new Error('usage: crash-process RUNNER_ID [STAND_IN_FOR_QEMU]');
const vm = await openFixture(runnerId);
const engine: Engine = standIn ? { ...vm.engine, qemu: { ...vm.engine.qemu, path: standIn } } : vm.engine;
const before = await leftovers(engine);
await reapOwned(vm.area.path, runnerId);
console.log(JSON.stringify({ found: before.length, left: await leftovers(engine) }));

/** Replicas at once. */
const HANDS = 2;
const life = async (): Promise<void> => {
  await using replica = new VirtualReplica(engine, vm.template);
  await replica.prepare();
  if (!standIn) {
    await replica.lease(never);
    await replica.screenshot(never);
  }
  await sleep(Math.random() * 50);
};
await Promise.all(
  Array.from({ length: HANDS }, async () => {
    for (;;) await life();
  }),
);
