import type { z } from 'zod';
import { knownFields } from './known-fields.ts';

/** A value as a schema reads it, or what is wrong with it. */
export type Reading<T> =
  | { ok: true; data: T }
  /** One line a problem: the field's path, what is allowed, and the value received. Of very many the first, and how many more. */
  | { ok: false; problems: string[] };

/**
 * Reads a value by a schema. What people are told of a wrong one is worded here and nowhere else: the words of a schema's
 * own where it has some, else ours; never zod's.
 * @param at where the value lies in what people know, for the paths
 */
export function readBy<T>(schema: z.ZodType<T>, value: unknown, at: readonly PropertyKey[] = []): Reading<T> {
  const parsed = schema.safeParse(value, { error: () => UNSAID });
  if (parsed.success) return { ok: true, data: parsed.data };
  const { issues } = parsed.error;
  // One of a union may be as many as its branch has.
  const all = issues.slice(0, MOST_PROBLEMS).flatMap((issue) => meant(issue, []));
  const told = all.slice(0, MOST_PROBLEMS);
  const lines = told
    .filter((issue, index) => issue.code !== 'custom' || !isToldBefore(issue, told.slice(0, index)))
    .map((issue) => lineOf(issue, { schema, value, at }));
  const more = Math.max(0, issues.length - MOST_PROBLEMS) + all.length - told.length;
  return { ok: false, problems: more > 0 ? [...lines, `and ${more} more`] : lines };
}

/** Who has made more mistakes than this has made one many times. */
export const MOST_PROBLEMS = 20;

/** All problems in one line. */
export function joinProblems(problems: readonly string[]): string {
  return problems.join('; ');
}

const MOST_CHARACTERS = 80;

/** A value as JSON, cut where it is long. */
export function quote(value: unknown): string {
  const text = printable(asJson(value));
  return text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS - 3)}...` : text;
}

function asJson(value: unknown): string {
  if (value === undefined) return 'nothing';
  // JSON knows neither NaN nor what is infinite: it would say null.
  if (typeof value === 'number') return String(value);
  try {
    return JSON.stringify(value) ?? typeof value;
  } catch {
    return typeof value;
  }
}

/** A message that may quote what others wrote: nothing in it is obeyed by a terminal. */
export function printable(message: string): string {
  return message.replace(/\p{Cc}/gu, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

type Issue = z.core.$ZodIssue;

/** In place of zod's own message, where the schema has none. */
const UNSAID = '';

/** An issue of a union as those of the branch that was meant: the one whose outermost kind fits. */
function meant(issue: Issue, prefix: readonly PropertyKey[]): Issue[] {
  const path = [...prefix, ...issue.path];
  if (issue.code !== 'invalid_union' || issue.message !== UNSAID) return [{ ...issue, path }];
  const branch = issue.errors.find((inner) => !inner.some(isOfWholeKind));
  return branch ? branch.flatMap((inner) => meant(inner, path)) : [{ ...issue, path }];
}

function isOfWholeKind(issue: Issue): issue is z.core.$ZodIssueInvalidType {
  return issue.path.length === 0 && issue.code === 'invalid_type';
}

/** A refinement looks at what is wrong already, too. */
function isToldBefore({ path }: Issue, before: readonly Issue[]): boolean {
  return before.some((issue) => issue.path.join() === path.join());
}

interface Read {
  schema: z.ZodType;
  value: unknown;
  at: readonly PropertyKey[];
}

/** A name that others chose may hold anything, also what a terminal obeys. */
function segment(key: PropertyKey): string {
  return typeof key === 'string' && !/^[\w-]{1,80}$/.test(key) ? quote(key) : String(key);
}

function lineOf(issue: Issue, { schema, value, at }: Read): string {
  const where = [...at, ...issue.path].map(segment).join('.');
  const received = valueAt(value, issue.path);
  const known = (): string[] => knownFields(schema, issue.path, value);
  if (issue.code === 'unrecognized_keys') return `${where && `${where}: `}${unknownFields(issue.keys, known())}`;
  const allowed = issue.message === UNSAID ? allowedBy(issue, known) : issue.message;
  if (received === undefined) return `${where || WHOLE}: ${issue.message === UNSAID ? 'is missing, ' : ''}${allowed}`;
  return `${where || WHOLE}: ${allowed}${sizeOf(issue, received)} (got ${quote(received)})`;
}

const WHOLE = '(the whole)';
const MOST_UNKNOWN = 5;

function unknownFields(keys: readonly string[], known: readonly string[]): string {
  const shown = keys.slice(0, MOST_UNKNOWN).map(quote).join(', ');
  const more = keys.length > MOST_UNKNOWN ? ` and ${keys.length - MOST_UNKNOWN} more` : '';
  return `unknown field ${shown}${more}; ${known.length > 0 ? `known are ${known.join(', ')}` : 'leave it out'}`;
}

const KINDS: Readonly<Record<string, string>> = {
  ...{ string: 'a text', number: 'a number', int: 'a whole number', boolean: 'true or false', null: 'null' },
  ...{ array: 'a list', tuple: 'a list', object: 'an object', record: 'an object' },
};

/** What a field must be, by an issue of it. */
function allowedBy(issue: Exclude<Issue, { code: 'unrecognized_keys' }>, known: () => string[]): string {
  switch (issue.code) {
    case 'invalid_type': {
      const fields = issue.expected === 'object' ? known() : [];
      return `must be ${kindOf(issue)}${fields.length > 0 ? ` with ${fields.join(', ')}` : ''}`;
    }
    case 'invalid_value':
      return `must be ${oneOf(issue.values)}`;
    case 'too_big':
      return `must ${issue.inclusive === false ? 'be less than' : sized(issue.origin, 'at most')} ${amount(issue.origin, issue.maximum)}`;
    case 'too_small':
      return `must ${issue.inclusive === false ? 'be more than' : sized(issue.origin, 'at least')} ${amount(issue.origin, issue.minimum)}`;
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}`;
    case 'invalid_format':
      return `must be ${FORMATS[issue.format] ?? (issue.pattern ? `like ${issue.pattern}` : issue.format)}`;
    case 'invalid_union':
      return `must be ${unionOf(issue)}`;
    case 'invalid_key':
    case 'invalid_element':
      return 'has a part that is not allowed';
    case 'custom':
      return 'is not allowed';
  }
}

const FORMATS: Readonly<Record<string, string>> = {
  base64: 'base64',
  datetime: 'a time like 2026-01-31T12:00:00.000Z',
};

function kindOf({ expected }: z.core.$ZodIssueInvalidType): string {
  return KINDS[expected] ?? expected;
}

function oneOf(values: readonly unknown[]): string {
  return values.length === 1 ? quote(values[0]) : `one of ${values.map(String).join(', ')}`;
}

/** Texts, numbers, true and false, null, lists and objects. */
const JSON_KINDS = 6;

/** Of a tagged union its tags; of another one whose branches are all of another kind, their kinds. */
function unionOf(issue: z.core.$ZodIssueInvalidUnion): string {
  if ('options' in issue && issue.options) return oneOf(issue.options);
  const kinds = [...new Set(issue.errors.flat().filter(isOfWholeKind).map(kindOf))];
  if (kinds.length < 2) return kinds[0] ?? 'another value';
  return kinds.length === JSON_KINDS ? 'any value of JSON' : `${kinds.slice(0, -1).join(', ')} or ${kinds.at(-1)}`;
}

const UNITS: Readonly<Record<string, [one: string, many: string]>> = {
  string: ['character', 'characters'],
  array: ['entry', 'entries'],
};

function sized(origin: string, bound: string): string {
  return origin in UNITS ? `have ${bound}` : `be ${bound}`;
}

function amount(origin: string, count: number | bigint): string {
  const [one, many] = UNITS[origin] ?? ['', ''];
  return `${count} ${count === 1 ? one : many}`.trimEnd();
}

/** How large it is, where that is what is wrong: the value itself may be cut. */
function sizeOf(issue: Issue, received: unknown): string {
  if (issue.message !== UNSAID || (issue.code !== 'too_big' && issue.code !== 'too_small')) return '';
  return issue.origin in UNITS ? `, has ${(received as string | unknown[]).length}` : '';
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null | undefined)?.[key], value);
}
