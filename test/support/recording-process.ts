/**
 * A process that records an attempt and is killed: `tsx recording-process.ts <endpoint> <spool root> <attempt json> <steps> <end>`.
 * Says `recorded` on standard output when the steps are on disk, and `finished` if it ever gets so far.
 */
import { pino } from 'pino';
import { Recording } from '../../runner/storage/recorder.ts';
import { ObjectStore } from '../../runner/storage/s3.ts';
import { type AttemptAddress, Spool } from '../../runner/storage/spool.ts';
import { Uploader } from '../../runner/storage/uploader.ts';
import { never, recordStep } from './recording.ts';
import { sampleResult } from './samples.ts';

const [endpoint = '', root = '', attempt = '', steps = '0', end = ''] = process.argv.slice(2);
const address = JSON.parse(attempt) as AttemptAddress;
const credentials = { accessKeyId: 'gymbus', secretAccessKey: 'gymbussecret' };
const store = new ObjectStore({ endpoint, region: 'us-east-1', bucket: 'gymbus', credentials });
const place = { store, spool: await Spool.open(root), uploader: new Uploader(store, pino({ level: 'silent' })) };
const recording = await Recording.begin(place, address, Buffer.from('{"job":1}'), never);
for (let step = 0; step < Number(steps); step++) await recordStep(recording, step);
console.log('recorded');
if (end === 'finish') await recording.finish({ outcome: sampleResult(address), versions: {} }, never);
console.log('finished');
setInterval(() => {}, 1_000);
