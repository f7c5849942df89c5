import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureTool } from '../../infra/tools.ts';
import { freeze } from './freeze.ts';
import { cacheDir, freePort } from './nats.ts';

const credentials = { accessKeyId: 'gymbus', secretAccessKey: 'gymbussecret' };

/** A real S3 server with its own store, to kill, freeze and start again. */
export async function startVersitygw(tls?: { cert: string; key: string }) {
  const binary = await ensureTool('versitygw', { cacheDir });
  const folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-s3-'));
  const port = await freePort();
  let child: ChildProcess | undefined;
  const secure = tls ? ['--cert', tls.cert, '--key', tls.key] : [];
  const endpoint = `${tls ? 'https' : 'http'}://127.0.0.1:${port}`;
  const start = async (): Promise<void> => {
    child = spawn(binary, ['--port', `127.0.0.1:${port}`, '--quiet', ...secure, 'posix', folder], {
      env: { ROOT_ACCESS_KEY: credentials.accessKeyId, ROOT_SECRET_KEY: credentials.secretAccessKey },
      stdio: 'ignore',
    });
    for (let tries = 0; tries < 100; tries++) {
      const there = await new Promise((resolve) => {
        const socket = connect(port, '127.0.0.1', () => resolve(true)).once('error', () => resolve(false));
        socket.once('connect', () => socket.destroy());
      });
      if (there) return;
      await sleep(50);
    }
    throw new Error('versitygw did not start');
  };
  const kill = async (): Promise<void> => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };
  await start();
  return {
    endpoint,
    port,
    credentials,
    folder,
    start,
    kill,
    freeze: () => freeze(child?.pid),
    thaw: () => child?.kill('SIGCONT'),
    async stop(): Promise<void> {
      child?.kill('SIGCONT');
      await kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
