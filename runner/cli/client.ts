import { BusRefused, BusUnreachable } from '../bus/errors.ts';
import { type Bus, openBus } from '../bus/index.ts';
import { type Config, ConfigError, readConfig } from '../host/config.ts';
import { createLog } from '../host/log.ts';
import { ObjectStore } from '../storage/s3.ts';
import { CliError, EXIT } from './error.ts';
import { findLocalStack, stackEnvironment } from './stack.ts';

/** How long a command waits for a server that does not answer. */
const PATIENCE_MS = 3_000;

/** @throws CliError that names each wrong variable */
export function configOf(env: Record<string, string | undefined>): Config {
  try {
    return readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) throw new CliError(error.message, EXIT.usage, { cause: error });
    throw error;
  }
}

/**
 * Where a command finds its servers: the environment, and where that names no NATS, the local stack if one runs.
 * So `gymbus submit` works beside `gymbus up` with nothing exported.
 */
export async function clientConfig(): Promise<Config> {
  if (process.env.NATS_URL) return configOf(process.env);
  const stack = await findLocalStack();
  return configOf(stack === null ? process.env : { ...process.env, ...stackEnvironment(stack) });
}

/** Whether the environment says where a bucket is: the default's name is somebody else's on AWS. */
export const namesBucket = (config: Config): boolean =>
  config.s3.endpoint !== undefined || Boolean(process.env.GYMBUS_BUCKET);

/** The same for a command that needs S3 alone: with no stack, and none named, it would look at AWS. */
export async function storeConfig(): Promise<Config> {
  const config = await clientConfig();
  if (!namesBucket(config) && !process.env.NATS_URL) {
    throw new CliError(
      `no local stack runs on GYMBUS_DATA=${config.dataDir}: \`npx gymbus up\` starts one; for another S3 set AWS_ENDPOINT_URL, for AWS itself GYMBUS_BUCKET`,
    );
  }
  return config;
}

/** Opens the bus for one command. @throws BusUnreachable, BusRefused, or a CliError that says more of where it was looked for */
export async function openClientBus(config: Config): Promise<Bus> {
  try {
    return await openBus({
      ...config.nats,
      name: 'gymbus client',
      log: createLog({ level: 'error', format: config.log.format }),
      patienceMs: PATIENCE_MS,
    });
  } catch (error) {
    if (!(error instanceof BusRefused || error instanceof BusUnreachable) || process.env.NATS_URL) throw error;
    throw new CliError(
      `${error.message}\nNATS_URL is not set, and no local stack runs on GYMBUS_DATA=${config.dataDir}; \`npx gymbus up\` starts one`,
      EXIT.no,
      { cause: error },
    );
  }
}

/** The bucket, with the credentials of the environment or of the local stack. */
export function openClientStore(config: Config): ObjectStore {
  return new ObjectStore({ ...config.s3, patienceMs: PATIENCE_MS });
}
