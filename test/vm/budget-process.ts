import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { never, openFixture } from './fixture.ts';

/** A runner's pool in a process of its own that has jobs without end: claims, holds for a moment, discards, and writes each down. */
const [runnerId, ledgerFolder, proc, log, stop] = process.argv.slice(2);
if (!runnerId || !ledgerFolder || !proc || !log || !stop)
  throw new Error('usage: budget-process RUNNER LEDGER PROC LOG STOP');
await using vm = await openFixture(runnerId);
const image = vm.image.name;
await using pool = await vm.pool({ acting: 2, ready: 1 }, runnerId, {
  ...{ ledgerFolder, kernel: { proc, sys: '/sys' } },
});
async function play(reservation: NonNullable<ReturnType<typeof pool.reserve>>): Promise<void> {
  const replica = await reservation.claim(never);
  await replica.screenshot(never);
  await sleep(300);
  appendFileSync(log as string, `- ${runnerId}\n`);
  await replica.discard();
}
const playing = new Set<Promise<void>>();
// A runner's connection to its bus keeps its process alive; a pool with no room has nothing that would.
const connection = setInterval(() => undefined, 60_000);
while (!existsSync(stop)) {
  pool.expect(image, 5);
  const reservation = pool.reserve(image);
  if (!reservation) {
    await pool.waitReady(image, AbortSignal.timeout(1_000));
    continue;
  }
  appendFileSync(log, `+ ${runnerId}\n`);
  const one = play(reservation).finally(() => playing.delete(one));
  playing.add(one);
}
await Promise.all(playing);
clearInterval(connection);
