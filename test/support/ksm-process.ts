import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { openMerging } from '../../runner/replica/ksm.ts';

/** A runner that has its memory merged, until it is killed. */
const [root = '', sys = ''] = process.argv.slice(2);
await openMerging(root, true, pino({ level: 'silent' }), { sys });
console.log('on');
await sleep(600_000);
