import { JetStreamApiCodes, JetStreamApiError, type StreamConfig } from '@nats-io/jetstream';
import { millis, type Nanos } from '@nats-io/transport-node';
import type { Bus } from './index.ts';
import { answered } from './stored.ts';
import { type StreamDefinition, streamDefinitions } from './streams.ts';

/** A stream is there and is not what delivery rests on; each differing field is named. */
export class StreamDiffers extends Error {
  override readonly name = 'StreamDiffers';
}

const NAME_IN_USE = 10058;
const SUBJECTS_OVERLAP = 10065;

/**
 * Makes what is missing and checks what is there, read back from the server. Idempotent; several at once do no harm.
 * @returns the names of the streams that were made
 * @throws StreamDiffers when one is not as needed; it is left as it is. BusAway, BusRefused
 */
export async function ensureStreams(bus: Bus, definitions = streamDefinitions(bus.names)): Promise<string[]> {
  const made: string[] = [];
  const problems: string[] = [];
  for (const definition of definitions) {
    try {
      if (await ensureStream(bus, definition)) made.push(definition.name);
    } catch (error) {
      if (!(error instanceof StreamDiffers)) throw error;
      problems.push(error.message);
    }
  }
  if (problems.length > 0) throw new StreamDiffers(problems.join('\n'));
  return made;
}

/** @returns whether it was made by this call */
async function ensureStream(bus: Bus, definition: StreamDefinition): Promise<boolean> {
  let found = await readConfig(bus, definition.name);
  let made = false;
  if (found === null) {
    made = await addStream(bus, definition);
    // Read back: a server may accept a field and drop it.
    found = await readConfig(bus, definition.name);
    if (found === null) throw new StreamDiffers(`stream ${definition.name} vanished right after it was made`);
  }
  const differing = differences(definition.needed, found);
  if (differing.length > 0) {
    const remedy = `nats stream edit ${definition.name}, or delete it while it is empty and let gymbus make it anew`;
    throw new StreamDiffers(
      `stream ${definition.name} is not as needed:\n  ${differing.join('\n  ')}\n  remedy: ${remedy}`,
    );
  }
  return made;
}

async function addStream(bus: Bus, definition: StreamDefinition): Promise<boolean> {
  try {
    const config = { ...definition.initial, ...definition.needed, name: definition.name };
    await answered(bus, () => bus.jsm.streams.add(config as Partial<StreamConfig> & { name: string }));
    return true;
  } catch (error) {
    if (!(error instanceof JetStreamApiError)) throw error;
    // Another runner was first, with another `initial` part: what counts is compared next.
    if (error.code === NAME_IN_USE) return false;
    if (error.code === SUBJECTS_OVERLAP) {
      const owner = await streamOf(bus, definition.needed.subjects?.[0] ?? '');
      throw new StreamDiffers(
        `stream ${definition.name} cannot be made: its subjects ${definition.needed.subjects?.join(', ')} belong to ${owner}; ` +
          'remove that stream, or choose another prefix (GYMBUS_PREFIX)',
        { cause: error },
      );
    }
    throw new Error(`nats-server refuses to make stream ${definition.name}: ${error.message} (${error.code})`, {
      cause: error,
    });
  }
}

async function streamOf(bus: Bus, subject: string): Promise<string> {
  const names: string[] = [];
  for await (const name of bus.jsm.streams.names(subject)) names.push(name);
  return names.length > 0 ? `stream ${names.join(', ')}` : 'another stream';
}

async function readConfig(bus: Bus, name: string): Promise<StreamConfig | null> {
  try {
    return (await answered(bus, () => bus.jsm.streams.info(name))).config;
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound) return null;
    throw error;
  }
}

/** One line a field that differs: its name, the value found and the value needed. */
export function differences<T extends object>(needed: Partial<T>, found: Partial<T>): string[] {
  return Object.entries(needed)
    .filter(([field, value]) => canonical(value) !== canonical((found as Record<string, unknown>)[field]))
    .map(
      ([field, value]) =>
        `${field}: found ${show(field, (found as Record<string, unknown>)[field])}, needed ${show(field, value)}`,
    );
}

/** The server leaves zero values out: absent, false, 0 and '' are one. */
function canonical(value: unknown): string {
  if (value === undefined || value === null || value === false || value === 0 || value === '') return '';
  if (Array.isArray(value)) return JSON.stringify(value.map(canonical).sort());
  if (typeof value === 'object') {
    const fields = Object.entries(value).map(([key, item]) => [key, canonical(item)]);
    return JSON.stringify(fields.filter(([, item]) => item !== '').sort());
  }
  return JSON.stringify(value);
}

const DURATIONS = new Set([
  'max_age',
  'duplicate_window',
  'subject_delete_marker_ttl',
  'ack_wait',
  'inactive_threshold',
]);

function show(field: string, value: unknown): string {
  if (value === undefined) return 'nothing';
  if (DURATIONS.has(field) && typeof value === 'number')
    return value === 0 ? '0' : `${millis(value as Nanos) / 1000} s`;
  return JSON.stringify(value);
}
