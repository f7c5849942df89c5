import { writeSync } from 'node:fs';
import { holdLease } from '../../runner/bus/lease.ts';
import { pullOne } from './bus-jobs.ts';
import { NatsServer, openTestBus } from './nats.ts';

// Holds a job and asks all the time whether it does, letting no timer run; the test freezes this process meanwhile.
const url = new URL(process.argv[2] ?? '');
const bus = await openTestBus(new NatsServer(Number(url.port), '', ''));
const ackWaitMs = 900;
const lease = holdLease(bus, await pullOne(bus, ackWaitMs), { ackWaitMs });
writeSync(1, `held\n${process.pid}\n`);
try {
  for (const endMs = performance.now() + 10_000; performance.now() < endMs; ) lease.assertHeld();
  writeSync(1, 'held all the time\n');
} catch (error) {
  writeSync(1, `${(error as Error).name}\n`);
}
process.exit(0);
