import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Ledger, type Spoken } from '../../runner/replica/ledger.ts';

/** A runner that takes and gives back places as fast as it can, until the file `stop` is there; each grant is written down after it, each return before it. */
export interface LedgerOrder {
  folder: string;
  log: string;
  stop: string;
  runner: string;
  cpus: number;
  /** What there is above the floor. */
  memoryBytes: number;
  /** Of one place. */
  placeBytes: number;
  milliCpus: number;
  /** Most it holds at once, and for how long. */
  places: number;
  holdMs: number;
}

const order = JSON.parse(process.argv[2] ?? '') as LedgerOrder;
const look = () => ({
  ...{ memoryBytes: order.memoryBytes, cpus: order.cpus, diskBytes: 2 ** 40, devices: [1], pressure: null },
});
using ledger = new Ledger(order.folder, order.runner, look, { memoryBytes: 0, diskBytes: 0 });
let held = 0;
const spoken = (places: number): Spoken => ({
  ...{ acting: places, milliCpus: places * order.milliCpus, memoryBytes: places * order.placeBytes, diskBytes: 0 },
});
async function hold(): Promise<void> {
  held += 1;
  appendFileSync(order.log, `+ ${order.runner}\n`);
  if (order.holdMs > 0) await sleep(order.holdMs * (0.5 + Math.random()));
  appendFileSync(order.log, `- ${order.runner}\n`);
  held -= 1;
  ledger.set(spoken(held));
}
const holding: Promise<void>[] = [];
while (!existsSync(order.stop)) {
  const refusal = held < order.places ? ledger.ask(spoken(held + 1), { act: true }) : 'full';
  if (refusal === null) {
    const one = hold();
    // Without a time to hold it is given back before anything else is done.
    if (order.holdMs === 0) await one;
    else holding.push(one);
    continue;
  }
  if (refusal !== 'full') ledger.waits(true);
  await sleep(Math.random() * 4);
}
await Promise.all(holding);
