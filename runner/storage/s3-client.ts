import { S3Client } from '@aws-sdk/client-s3';
import { readAuthorities } from '../system/authorities.ts';
import { StorageRefused } from './errors.ts';

/** Where objects live and how to speak to it. */
export interface S3Config {
  /** AWS itself when absent. */
  endpoint?: string | undefined;
  region: string;
  bucket: string;
  /** By default the usual AWS environment: variables, profile, instance role. */
  credentials?: { accessKeyId: string; secretAccessKey: string; sessionToken?: string } | undefined;
  /** Bucket in the path instead of the host name; by default where an endpoint is given. */
  pathStyle?: boolean | undefined;
  /** PEM file of the endpoint's certificate authority. */
  caFile?: string | undefined;
  /** A connection on which no byte moves for so long is dropped. */
  stallMs?: number | undefined;
  /** How long reads and small writes go on while S3 is away. */
  patienceMs?: number | undefined;
}

/** A healthy S3 answers a small request in milliseconds; a throttled one may think for seconds. */
export const STALL_MS = 15_000;
/** Beyond a SYN lost and sent again twice. */
const CONNECT_MS = 5_000;
/** Above all concurrent users of one client, for the time-out of a connection also counts the wait for a free socket. */
const MAX_SOCKETS = 64;

/** Everything the SDK would say is in the errors it throws, and who catches them tells. */
const SILENT = { trace: () => {}, debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/**
 * A client that does not retry by itself: callers do, and know of it.
 * A put that brings its own SHA-256 has its payload signed with it, so the server checks the bytes twice and
 * nothing is hashed here again, streams included.
 * @param maxTries of the SDK's own retries, for the parts of multipart uploads
 * @throws StorageRefused when the endpoint is no URL, or the file of its authority holds no certificate
 */
export function createS3Client(config: S3Config, maxTries = 1): S3Client {
  if (config.endpoint !== undefined && !/^https?:$/.test(protocolOf(config.endpoint))) {
    throw new StorageRefused(
      'InvalidEndpoint',
      `AWS_ENDPOINT_URL=${config.endpoint} is no URL of S3: give one like http://127.0.0.1:9000`,
    );
  }
  // The SDK is pinned: that its later versions want a later Node is nothing for a runner's log.
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED ??= 'true';
  const ca = authoritiesOf(config);
  const agent = { keepAlive: true, maxSockets: MAX_SOCKETS };
  const client = new S3Client({
    region: config.region,
    forcePathStyle: config.pathStyle ?? config.endpoint !== undefined,
    maxAttempts: maxTries,
    logger: SILENT,
    // A wait for `100 Continue` saves nothing on bodies this small, and costs a fresh connection each.
    expectContinueHeader: false,
    requestHandler: {
      connectionTimeout: Math.min(CONNECT_MS, config.stallMs ?? CONNECT_MS),
      socketTimeout: config.stallMs ?? STALL_MS,
      httpAgent: agent,
      httpsAgent: ca === undefined ? agent : { ...agent, ca },
    },
    ...(config.endpoint === undefined ? {} : { endpoint: config.endpoint }),
    ...(config.credentials === undefined ? {} : { credentials: config.credentials }),
  });
  client.middlewareStack.add(
    (next) => (args) => {
      const { headers } = args.request as { headers?: Record<string, string> };
      const sha256 = headers?.['x-amz-checksum-sha256'];
      if (headers && sha256) headers['x-amz-content-sha256'] = Buffer.from(sha256, 'base64').toString('hex');
      return next(args);
    },
    { step: 'build', priority: 'low', name: 'signPayloadByItsChecksum' },
  );
  return client;
}

/** Undefined where none are needed: AWS_CA_BUNDLE may be set for others, and be wrong, when our endpoint is plain. */
function authoritiesOf({ endpoint = 'https:', caFile }: S3Config): Buffer | undefined {
  if (caFile === undefined || !endpoint.startsWith('https:')) return undefined;
  try {
    return readAuthorities(caFile);
  } catch (error) {
    throw new StorageRefused(
      'InvalidAuthorities',
      `AWS_CA_BUNDLE=${caFile}: ${(error as Error).message}; name the PEM file of the authority of S3's certificate`,
      { cause: error },
    );
  }
}

function protocolOf(endpoint: string): string {
  return URL.canParse(endpoint) ? new URL(endpoint).protocol : '';
}
