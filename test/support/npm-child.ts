import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError } from '../../runner/cli/error.ts';
import { Interrupt } from '../../runner/cli/interrupt.ts';
import { watchNpm } from '../../runner/cli/parent-watch.ts';

// Waits, as `gymbus up` does, for a signal or for the end of the npm that started it, and tells which it was.
using interrupt = new Interrupt();
using _npm = await watchNpm(() => interrupt.fail('the npm that started this is gone'));
const tell = (text: string): unknown => writeSync(1, `${text}\n`);
interrupt.signal.addEventListener('abort', () => {
  const { reason } = interrupt.signal;
  tell(`told: ${reason instanceof CliError ? reason.message : reason}`);
});
const hurried = new Promise<void>((resolve) => {
  interrupt.hurry.addEventListener('abort', () => {
    tell('hurried');
    resolve();
  });
});
tell(`pid ${process.pid}`);
// A minute without either is an end, too.
await Promise.race([hurried, sleep(60_000, undefined, { ref: true })]);
process.exit();
