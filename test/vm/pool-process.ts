import { setTimeout as sleep } from 'node:timers/promises';
import { never, openFixture } from './fixture.ts';

/** A runner's pool in a process of its own, for tests that kill it: claims one replica, says which QEMUs it has, and waits. */
const [runnerId] = process.argv.slice(2);
if (!runnerId) throw new Error('usage: pool-process RUNNER_ID');
const vm = await openFixture(runnerId);
const pool = await vm.pool({ acting: 1, ready: 1 });
await pool.waitReady(vm.image.name, never);
const replica = await pool.reserve(vm.image.name)?.claim(never);
while ((pool.phases().hot ?? 0) < 1) await sleep(50);
console.log(JSON.stringify({ area: vm.area.path, leased: replica?.id }));
await sleep(600_000);
