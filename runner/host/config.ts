import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { ID_PATTERN, Id, quote, readBy } from '../../schemas/index.ts';
import { parseServer } from '../bus/connection.ts';
import { BusRefused } from '../bus/errors.ts';

/** What a header of HTTP can carry as one word. */
const PRINTABLE = /^[\x21-\x7e]+$/;
/** What S3 takes for a name: it is a part of host names, and no address. */
const BUCKET_PATTERN = /^(?!\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
/** An image's name, alone or with the first digits of its digest. */
const IMAGE_PATTERN = /^[A-Za-z0-9_-]{1,64}(@[0-9a-f]{1,64})?$/;

const Images = z.string().transform((text, refinement) => {
  const images = listOf(text);
  const wrong = images.find((image) => !IMAGE_PATTERN.test(image));
  const names = images.map((image) => image.split('@')[0] ?? '');
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (images.length === 0) refinement.addIssue('must name at least one image');
  else if (wrong !== undefined)
    refinement.addIssue(`must be NAME or NAME@DIGEST, comma separated; ${quote(wrong)} is neither`);
  else if (twice !== undefined) refinement.addIssue(`names ${twice} twice: a job names an image by its name alone`);
  return images;
});

/** A timer of Node's that is set to more than 24 days runs out at once. */
const LONGEST_WAIT_S = 86_400;
const number = z.coerce.number();
const optionalCount = (least: number, most: number) =>
  z.preprocess((value) => (value === '' ? undefined : value), number.int().min(least).max(most).optional());

/** The environment of a runner. Every variable has a default that works on one machine. */
const Environment = z.object({
  NATS_URL: z.string().default('nats://127.0.0.1:4222').describe('Servers, comma separated'),
  NATS_CREDS: z.string().optional().describe('File with NATS credentials (JWT and seed)'),
  NATS_USER: z.string().optional().describe('User, where no credentials file is used'),
  NATS_PASSWORD: z.string().optional().describe('Password of NATS_USER'),
  NATS_CA: z.string().optional().describe('File with the certificate authority of the NATS servers'),
  AWS_ENDPOINT_URL: z
    .string()
    .refine((text) => /^https?:$/.test(protocolOf(text)), 'must be a URL like http://127.0.0.1:9000')
    .optional()
    .describe('S3 endpoint; AWS itself when unset. Keys by the usual AWS variables'),
  AWS_REGION: z
    .string()
    .regex(/^[A-Za-z0-9-]+$/, 'must be a region like us-east-1')
    .default('us-east-1')
    .describe('S3 region'),
  AWS_ACCESS_KEY_ID: z
    .string()
    .regex(PRINTABLE, 'must be a key as it was given, without blanks and line ends')
    .optional()
    .describe('S3 key; without it the usual AWS chain: profile, instance role'),
  AWS_SECRET_ACCESS_KEY: z.string().optional().describe('Secret of AWS_ACCESS_KEY_ID'),
  AWS_SESSION_TOKEN: z.string().optional().describe('Token of temporary keys'),
  AWS_CA_BUNDLE: z.string().optional().describe('File with the certificate authority of the S3 endpoint'),
  GYMBUS_S3_PATH_STYLE: z
    .enum(['auto', 'yes', 'no'])
    .default('auto')
    .describe('Bucket in the path, not in the host name; auto: yes where an endpoint is given'),
  GYMBUS_BUCKET: z
    .string()
    .regex(
      BUCKET_PATTERN,
      'must be 3 to 63 characters of a-z 0-9 . - as S3 takes them: a letter or digit at both ends, no .., no IP address',
    )
    .default('gymbus')
    .describe('Bucket of trajectories, inputs and images'),
  GYMBUS_DOWNLOAD_MIB: number.positive().default(256).describe('Largest file a set-up may download'),
  GYMBUS_DOWNLOAD_PRIVATE: z
    .enum(['yes', 'no'])
    .default('no')
    .describe('Whether set-ups may download from loopback and private addresses, and network.hosts of jobs lead there'),
  GYMBUS_PREFIX: Id.default('gymbus').describe('First token of all subjects and of stream names'),
  GYMBUS_RUNNER_ID: Id.default(defaultRunnerId()).describe('This runner; two on a host need two'),
  GYMBUS_DATA: z
    .string()
    .default(underRoot('/var/lib/gymbus', '.local/share/gymbus'))
    .describe('Templates, clones, spool'),
  GYMBUS_CACHE: z
    .string()
    .default(underRoot('/var/cache/gymbus', '.cache/gymbus'))
    .describe('Images and tools, by digest'),
  GYMBUS_IMAGES: Images.prefault('debian-desktop').describe(
    'Images served, comma separated, name or name@digest; what the cache lacks a runner fetches from the bucket',
  ),
  GYMBUS_ACTING: optionalCount(1, 4_096).describe(
    'Replicas that may act at once; by default from memory, CPUs and disk',
  ),
  GYMBUS_READY: optionalCount(1, 4_096).describe(
    'Hot replicas kept of each image, asked for or not; by default as many as may act, by demand',
  ),
  GYMBUS_FROZEN: optionalCount(0, 65_536).describe(
    'Frozen replicas kept behind them, of each image; by default as many as may act, by demand, and none where GYMBUS_READY is set',
  ),
  GYMBUS_K: optionalCount(1, 4_096).describe(
    'Replicas that may act in each group of processors; by default what those carry',
  ),
  GYMBUS_GROUP_CPUS: optionalCount(1, 4_096).describe(
    'Processors in a group, which its replicas keep to; by default all of a NUMA node',
  ),
  GYMBUS_KSM: z
    .enum(['on', 'off'])
    .default('off')
    .describe(
      'Whether the kernel may merge equal memory of replicas: saves half of it, costs processor time, and leaks timing',
    ),
  GYMBUS_USD_PER_DAY: z
    .preprocess((value) => (value === '' ? undefined : value), number.positive().optional())
    .describe('What this host costs a day, for gymbus capacity'),
  GYMBUS_ACCEL: z.enum(['auto', 'kvm', 'tcg']).default('auto').describe('auto boots a tiny guest to find out'),
  GYMBUS_QEMU_USER: z
    .string()
    .regex(/^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$/, 'must be the name or number of a user of this host')
    .optional()
    .describe(
      'User that QEMU runs as where the runner is root, by name or number; gymbus-qemu when unset, made if missing',
    ),
  GYMBUS_SETTLE_MS: number
    .min(0)
    .default(300)
    .describe('How long the desktop must be at rest before its picture is taken: processor asleep, nothing moving'),
  GYMBUS_SETTLE_MAX_MS: number
    .min(0)
    .max(LONGEST_WAIT_S * 1_000)
    .default(10_000)
    .describe(
      'Most time it may take to come to rest, what it waits for a busy host left out; then its picture is taken as it is',
    ),
  GYMBUS_DRAIN_S: number
    .min(0)
    .max(LONGEST_WAIT_S)
    .default(20)
    .describe('How long jobs may still run after SIGTERM before they are given back'),
  GYMBUS_DISK_FLOOR_GIB: number.min(0).default(2).describe('Free disk below which no job is pulled'),
  GYMBUS_SPOOL_GIB: number
    .positive()
    .default(20)
    .describe('Trajectory bytes waiting for S3 above which no job is pulled'),
  GYMBUS_HEALTH_PORT: number
    .int()
    .min(0)
    .max(65_535)
    .default(0)
    .describe('Port of /healthz on loopback; 0: any free one'),
  GYMBUS_LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error']).default('info').describe('Least level logged'),
  GYMBUS_LOG_FORMAT: z.enum(['auto', 'json', 'pretty']).default('auto').describe('auto: pretty on a terminal'),
});

export const CONFIGURATION = Environment.shape;
/** Read elsewhere: by the tests, by the set-up of MinIO. */
const ALSO_KNOWN = /^GYMBUS_(TEST_|LEAK_TEST|OSWORLD|.*_SECRET$)/;
export type Config = ReturnType<typeof readConfig>;

/** A variable is wrong; the message names each, its value and what it may be. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

/**
 * Parses the environment once. Sizes come out in bytes, times in milliseconds.
 * @throws ConfigError
 */
export function readConfig(env: Record<string, string | undefined>) {
  const present = Object.fromEntries(
    Object.entries(env).filter(([key, value]) => key in CONFIGURATION && value !== ''),
  );
  const misspelt = Object.keys(env).find(
    (key) => key.startsWith('GYMBUS_') && !(key in CONFIGURATION) && !ALSO_KNOWN.test(key),
  );
  if (misspelt !== undefined) {
    throw new ConfigError(`there is no setting ${misspelt}: unset it, or spell it as gymbus run --help lists it`);
  }
  const blank = Object.keys(present).find((key) => present[key]?.trim() === '');
  if (blank !== undefined) throw new ConfigError(`${blank} holds nothing but blanks: unset it, or give it a value`);
  const read = readBy(Environment, present);
  if (!read.ok) {
    throw new ConfigError(
      `wrong configuration:\n  ${read.problems.join('\n  ')}\n  gymbus run --help lists every variable`,
    );
  }
  const e = read.data;
  if ((e.AWS_ACCESS_KEY_ID === undefined) !== (e.AWS_SECRET_ACCESS_KEY === undefined)) {
    throw new ConfigError('AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together: set both, or neither');
  }
  for (const name of ['AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN'] as const) {
    // Not among the rest, which are shown.
    if (!PRINTABLE.test(e[name] ?? '-')) {
      throw new ConfigError(`${name} must be as it was given, without blanks and line ends`);
    }
  }
  if (e.GYMBUS_SETTLE_MAX_MS < e.GYMBUS_SETTLE_MS) {
    throw new ConfigError(
      `GYMBUS_SETTLE_MAX_MS=${e.GYMBUS_SETTLE_MAX_MS} is below GYMBUS_SETTLE_MS=${e.GYMBUS_SETTLE_MS}: no picture would ever be taken in time; raise it`,
    );
  }
  const gib = 2 ** 30;
  return {
    nats: {
      servers: natsServers(e.NATS_URL),
      credentialsFile: e.NATS_CREDS,
      user: e.NATS_USER,
      password: e.NATS_PASSWORD,
      caFile: e.NATS_CA,
      prefix: e.GYMBUS_PREFIX,
    },
    s3: {
      endpoint: e.AWS_ENDPOINT_URL,
      region: e.AWS_REGION,
      caFile: e.AWS_CA_BUNDLE,
      bucket: e.GYMBUS_BUCKET,
      credentials: s3Credentials(e),
      pathStyle:
        e.GYMBUS_S3_PATH_STYLE === 'auto' ? e.AWS_ENDPOINT_URL !== undefined : e.GYMBUS_S3_PATH_STYLE === 'yes',
    },
    downloads: { maxBytes: e.GYMBUS_DOWNLOAD_MIB * 2 ** 20, allowPrivate: e.GYMBUS_DOWNLOAD_PRIVATE === 'yes' },
    runnerId: e.GYMBUS_RUNNER_ID,
    // Absolute: messages and exports name them to shells that are elsewhere.
    dataDir: path.resolve(e.GYMBUS_DATA),
    cacheDir: path.resolve(e.GYMBUS_CACHE),
    images: e.GYMBUS_IMAGES,
    acting: e.GYMBUS_ACTING,
    ready: e.GYMBUS_READY,
    frozen: e.GYMBUS_FROZEN,
    ...{ groupCpus: e.GYMBUS_GROUP_CPUS, perGroup: e.GYMBUS_K },
    mergeMemory: e.GYMBUS_KSM === 'on',
    usdPerDay: e.GYMBUS_USD_PER_DAY,
    accelerator: e.GYMBUS_ACCEL,
    qemuUser: e.GYMBUS_QEMU_USER,
    settle: { minMs: e.GYMBUS_SETTLE_MS, maxMs: e.GYMBUS_SETTLE_MAX_MS },
    drainMs: e.GYMBUS_DRAIN_S * 1_000,
    diskFloorBytes: e.GYMBUS_DISK_FLOOR_GIB * gib,
    spoolLimitBytes: e.GYMBUS_SPOOL_GIB * gib,
    healthPort: e.GYMBUS_HEALTH_PORT,
    log: { level: e.GYMBUS_LOG_LEVEL, format: e.GYMBUS_LOG_FORMAT },
  };
}

function s3Credentials(e: {
  AWS_ACCESS_KEY_ID?: string | undefined;
  AWS_SECRET_ACCESS_KEY?: string | undefined;
  AWS_SESSION_TOKEN?: string | undefined;
}) {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN: sessionToken } = e;
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
}

function defaultRunnerId(): string {
  const name =
    os
      .hostname()
      .split('.')[0]
      ?.replaceAll(/[^A-Za-z0-9_-]/g, '-')
      .slice(0, 64) ?? '';
  return ID_PATTERN.test(name) ? name : 'runner';
}

function underRoot(system: string, home: string): string {
  return process.getuid?.() === 0 ? system : path.join(os.homedir(), home);
}

/** Read as the bus reads it, whose message shows no password. */
function natsServers(text: string): string[] {
  const servers = listOf(text);
  if (servers.length === 0) throw new ConfigError('NATS_URL: must name at least one server: nats://host:port');
  for (const server of servers) {
    try {
      parseServer(server);
    } catch (error) {
      throw error instanceof BusRefused ? new ConfigError(`NATS_URL: ${error.message}`, { cause: error }) : error;
    }
  }
  return servers;
}

function listOf(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

function protocolOf(text: string): string {
  return URL.canParse(text) ? new URL(text).protocol : '';
}
