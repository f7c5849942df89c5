import { writeSync } from 'node:fs';
import { startLocalStack } from '../../infra/local-stack.ts';
import { cacheDir, silent } from './nats.ts';

// Runs a stack until it is told to stop or is killed: node stack-owner.ts DATA_DIR
const [dataDir = ''] = process.argv.slice(2);
const stack = await startLocalStack({ dataDir, cacheDir, log: silent, ports: { nats: 0, s3: 0 } });
writeSync(1, `${process.pid}\n${stack.natsUrl}\n`);
process.on('SIGTERM', () => void stack.stop());
