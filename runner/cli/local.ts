import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import type { Image } from '../../images/store.ts';
import { type LocalStack, startLocalStack } from '../../infra/local-stack.ts';
import { stackEnvironment } from '../../infra/stack-file.ts';
import type { Config } from '../host/config.ts';
import { createLog, type Logger } from '../host/log.ts';
import type { Runner } from '../host/runner.ts';
import { makeFolder } from '../system/make-folder.ts';
import { configOf } from './client.ts';
import { messageOf } from './error.ts';
import { ensureImages, refuseMissingImages } from './images.ts';
import { ensureHostPackages, ensureTools } from './install.ts';
import type { Interrupt } from './interrupt.ts';
import { progressView } from './progress.ts';
import { refuseWithoutRights } from './rights.ts';
import { startRunnerForCli } from './run-until-stopped.ts';
import { VERSIONS } from './version.ts';

/** A stack and a runner on this machine. Disposing drains the runner, then stops the servers. */
export interface LocalGym extends AsyncDisposable {
  config: Config;
  stack: LocalStack;
  runner: Runner;
  /** Where servers and runner log to. */
  logFile: string;
}

/**
 * Brings up everything on this machine: installs and builds what is missing, with the progress shown, starts the servers,
 * then a runner that serves the configured images.
 */
export async function startLocalGym(interrupt: Interrupt): Promise<LocalGym> {
  const base = configOf(process.env);
  const { signal } = interrupt;
  // Told before minutes are spent on builds.
  await refuseMissingImages(base);
  await makeFolder(base.dataDir);
  await makeFolder(base.cacheDir);
  await refuseWithoutRights(base);
  await ensureHostPackages(signal);
  await ensureTools(['nats-server', 'versitygw'], base.cacheDir, signal);
  const images = await ensureImages(base, signal);

  const logs = path.join(base.dataDir, 'logs');
  await mkdir(logs, { recursive: true });
  const logFile = path.join(logs, 'gymbus.log');
  const log = createLog({ ...base.log, format: 'json' }, logFile);
  const stack = await startStack(base, log, signal);
  // Without server or runner whoever waits for jobs would wait for ever. What is played without a server can go nowhere.
  const onFailed = (): void => interrupt.fail(messageOf(stack.failed.reason));
  if (stack.failed.aborted) onFailed();
  stack.failed.addEventListener('abort', onFailed, { once: true });
  try {
    const config = configOf({ ...process.env, ...stackEnvironment(stack) });
    const runner = await startRunner(config, images, log, interrupt);
    runner.failed.catch((error: unknown) => interrupt.stop(messageOf(error)));
    return {
      ...{ config, stack, runner, logFile },
      async [Symbol.asyncDispose]() {
        try {
          await runner.stop();
        } finally {
          await stack.stop();
        }
      },
    };
  } catch (error) {
    await stack.stop();
    throw error;
  }
}

async function startStack(config: Config, log: Logger, signal: AbortSignal): Promise<LocalStack> {
  try {
    return await startLocalStack({
      ...{ dataDir: config.dataDir, cacheDir: config.cacheDir, bucket: config.s3.bucket, log, signal },
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

async function startRunner(config: Config, images: Image[], log: Logger, interrupt: Interrupt): Promise<Runner> {
  const view = progressView('runner');
  try {
    return await startRunnerForCli(
      { config, images, log, versions: VERSIONS, createBucket: true, onProgress: (progress) => view.report(progress) },
      interrupt,
    );
  } finally {
    view.stop();
  }
}
