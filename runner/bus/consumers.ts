import { createHash } from 'node:crypto';
import { type ConsumerConfig, type ConsumerInfo, JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';
import { millis, nanos } from '@nats-io/transport-node';
import { consumerName, ID_PATTERN } from '../../schemas/index.ts';
import { differences } from './ensure.ts';
import type { Bus } from './index.ts';
import { answered } from './stored.ts';

/** Image and batch tokens of a subject; perhaps no legal ids. */
export interface BatchAddress {
  image: string;
  batch: string;
}

/** How a batch's durable stands. */
export interface BatchConsumer {
  name: string;
  /** The consumer's own, whatever it was made with: beats follow it. */
  ackWaitMs: number;
  /** Jobs delivered and not settled, those resting after a nak among them. */
  held: number;
  /** Neither waiting nor held by anybody. */
  empty: boolean;
}

/** The durable of a batch is there and unfit, or may not be made; each differing field is named. */
export class ConsumerUnfit extends Error {
  override readonly name = 'ConsumerUnfit';
}

/** A killed runner's job waits this long for the next; a beat every third of it. */
export const ACK_WAIT_MS = 30_000;
/** Pulls that may wait at once; ours never wait, other clients' may. Cannot be changed once made. */
const MAX_WAITING = 8_192;
/** The server removes an idle durable, even one with a job waiting; any runner makes it anew on sight. */
const INACTIVE_MS = 24 * 3_600_000;

/** True when a job of it can never have an outcome: it is delivered all the same, to be told so. */
function isIllegal({ image, batch }: BatchAddress): boolean {
  return !ID_PATTERN.test(image) || !ID_PATTERN.test(batch);
}

/**
 * True where a filter for it would match other batches' jobs, too: a server takes a job on such a subject, and a durable for
 * it would keep those from having one.
 */
export function isWildcard({ image, batch }: BatchAddress): boolean {
  return [image, batch].some((token) => token === '*' || token === '>');
}

/** `<image>~<batch>`; tokens that make no name are hashed, after a `~` that no legal pair begins with. */
export function durableName(address: BatchAddress): string {
  if (!isIllegal(address)) return consumerName(address.image, address.batch);
  const digest = createHash('sha256').update(`${address.image}.${address.batch}`).digest('hex');
  return `~${digest.slice(0, 24)}`;
}

/** The durable pull consumer of one batch on one image. */
function consumerDefinition(bus: Bus, address: BatchAddress, ackWaitMs = ACK_WAIT_MS) {
  return {
    needed: {
      durable_name: durableName(address),
      filter_subject: `${bus.names.prefix}.jobs.${address.image}.${address.batch}.>`,
      deliver_policy: 'all',
      ack_policy: 'explicit',
      max_deliver: -1,
    },
    initial: {
      description: `Jobs of batch ${address.batch} on image ${address.image}`,
      ack_wait: nanos(ackWaitMs),
      max_ack_pending: -1,
      max_waiting: MAX_WAITING,
      inactive_threshold: nanos(INACTIVE_MS),
    },
  } satisfies { needed: Partial<ConsumerConfig>; initial: Partial<ConsumerConfig> };
}

const CONSUMER_EXISTS = 10148;
const CONSUMER_NAME_IN_USE = 10013;
const FILTER_NOT_UNIQUE = 10100;

/**
 * Makes a batch's durable, or takes the one that is there if it is fit. Idempotent, and safe with several runners at once.
 * @throws ConsumerUnfit, BusAway
 */
export async function ensureConsumer(bus: Bus, address: BatchAddress, ackWaitMs?: number): Promise<BatchConsumer> {
  const { needed, initial } = consumerDefinition(bus, address, ackWaitMs);
  try {
    return describe(await answered(bus, () => bus.jsm.consumers.add(bus.names.jobsStream, { ...initial, ...needed })));
  } catch (error) {
    if (!(error instanceof JetStreamApiError)) throw error;
    if (error.code === CONSUMER_EXISTS || error.code === CONSUMER_NAME_IN_USE) return await adopt(bus, address);
    if (error.code === FILTER_NOT_UNIQUE) {
      throw new ConsumerUnfit(
        `consumer ${needed.durable_name} cannot be made: another consumer of ${bus.names.jobsStream} takes ${needed.filter_subject} too; ` +
          `find it with nats consumer report ${bus.names.jobsStream}, and remove it`,
        { cause: error },
      );
    }
    throw new ConsumerUnfit(
      `nats-server refuses to make consumer ${needed.durable_name}: ${error.message} (${error.code})`,
      {
        cause: error,
      },
    );
  }
}

async function adopt(bus: Bus, address: BatchAddress): Promise<BatchConsumer> {
  const { needed } = consumerDefinition(bus, address);
  const stream = bus.names.jobsStream;
  const info = await answered(bus, () => bus.jsm.consumers.info(stream, needed.durable_name));
  const differing = differences<Partial<ConsumerConfig>>(needed, info.config);
  if (info.config.backoff !== undefined && info.config.backoff.length > 0) {
    differing.push(`backoff: found ${JSON.stringify(info.config.backoff)}, needed none`);
  }
  if (differing.length > 0) {
    throw new ConsumerUnfit(
      `consumer ${needed.durable_name} of ${stream} is not as needed:\n  ${differing.join('\n  ')}\n  remedy: nats consumer rm ${stream} ${needed.durable_name}; it is made anew`,
    );
  }
  return describe(info);
}

/** How the durable stands now, or null when it is not there. @throws BusAway */
export async function readConsumer(bus: Bus, address: BatchAddress): Promise<BatchConsumer | null> {
  try {
    return describe(await answered(bus, () => bus.jsm.consumers.info(bus.names.jobsStream, durableName(address))));
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === JetStreamApiCodes.ConsumerNotFound) return null;
    throw error;
  }
}

function describe(info: ConsumerInfo): BatchConsumer {
  return {
    name: info.name,
    ackWaitMs: millis(info.config.ack_wait ?? nanos(ACK_WAIT_MS)),
    held: info.num_ack_pending,
    empty: info.num_pending === 0 && info.num_ack_pending === 0,
  };
}
