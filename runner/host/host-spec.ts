import { quote } from '../../schemas/index.ts';

/** A machine to plan, as `--host` describes it. */
export interface HostSpec {
  cores: number;
  memoryBytes: number;
  diskBytes: number;
  numaNodes: number;
  /** Null where it is not given. */
  usdPerDay: number | null;
  accelerator: 'kvm' | 'tcg' | null;
}

/** A `--host` that cannot be read; the message names the field, its value and what it may be. */
export class HostSpecError extends Error {
  override readonly name = 'HostSpecError';
}

const EXAMPLE = 'cores=88,memory=768G,disk=4T,numa=2,usd_per_day=235';
const UNITS: Readonly<Record<string, number>> = { M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };
const MOST_CORES = 4_096;
const FIELDS = ['cores', 'memory', 'disk', 'numa', 'usd_per_day', 'accel'] as const;
type Field = (typeof FIELDS)[number];

/**
 * Reads `cores=88,memory=768G,disk=4T,numa=2,usd_per_day=235,accel=kvm`; the first three are needed. Sizes are binary, as memory is sold.
 * @throws HostSpecError
 */
export function parseHostSpec(text: string): HostSpec {
  const given = fieldsOf(text);
  const cores = integer(given, 'cores', MOST_CORES);
  const numaNodes = given.has('numa') ? integer(given, 'numa', MOST_CORES) : 1;
  if (numaNodes > cores) {
    throw new HostSpecError(`--host numa=${numaNodes}: more memory nodes than cores (${cores}); lower numa`);
  }
  return {
    cores,
    memoryBytes: size(given, 'memory'),
    diskBytes: size(given, 'disk'),
    numaNodes,
    usdPerDay: given.has('usd_per_day') ? price(given.get('usd_per_day') ?? '') : null,
    accelerator: given.has('accel') ? accelerator(given.get('accel') ?? '') : null,
  };
}

function fieldsOf(text: string): Map<Field, string> {
  const given = new Map<Field, string>();
  for (const part of text.split(',')) {
    const [name = '', value, ...rest] = part.split('=').map((word) => word.trim());
    const field = FIELDS.find((known) => known === name);
    if (value === undefined || rest.length > 0) {
      throw new HostSpecError(`--host: ${quote(part)} is no field=value; write it like ${EXAMPLE}`);
    }
    if (field === undefined) {
      throw new HostSpecError(`--host: there is no field ${quote(name)}; there are ${FIELDS.join(', ')}`);
    }
    if (given.has(field)) throw new HostSpecError(`--host: ${field} is given twice; leave one out`);
    given.set(field, value);
  }
  return given;
}

function needed(given: Map<Field, string>, field: Field): string {
  const value = given.get(field);
  if (value === undefined) throw new HostSpecError(`--host: ${field} is missing; write it like ${EXAMPLE}`);
  return value;
}

function integer(given: Map<Field, string>, field: Field, most: number): number {
  const value = needed(given, field);
  const number = Number(value);
  if (/^\d+$/.test(value) && number >= 1 && number <= most) return number;
  throw new HostSpecError(`--host ${field}=${value}: must be a whole number from 1 to ${most}`);
}

function size(given: Map<Field, string>, field: Field): number {
  const value = needed(given, field);
  const [, number, unit = ''] = /^(\d+(?:\.\d+)?)([MGT])(?:i?B)?$/.exec(value) ?? [];
  const bytes = Number(number) * (UNITS[unit] ?? Number.NaN);
  if (bytes > 0 && bytes < Number.MAX_SAFE_INTEGER) return bytes;
  throw new HostSpecError(`--host ${field}=${value}: must be a size with M, G or T, like ${field}=768G`);
}

function price(value: string): number {
  const number = Number(value);
  if (value !== '' && Number.isFinite(number) && number > 0) return number;
  throw new HostSpecError(`--host usd_per_day=${value}: must be a number above 0, like usd_per_day=235`);
}

function accelerator(value: string): 'kvm' | 'tcg' {
  if (value === 'kvm' || value === 'tcg') return value;
  throw new HostSpecError(`--host accel=${value}: must be kvm or tcg`);
}
