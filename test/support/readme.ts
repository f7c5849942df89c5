import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { builtinFunctions } from '../../functions/registry.ts';
import { streamDefinitions } from '../../runner/bus/streams.ts';
import { gymbusCommand } from '../../runner/cli/program.ts';
import { CONFIGURATION } from '../../runner/host/config.ts';
import { busNames } from '../../schemas/index.ts';

const root = path.resolve(import.meta.dirname, '../..');
export const readmeFile = path.join(root, 'README.md');

/** A code block of the page and the comment right above it, e.g. `run` or `file: a/b.py`. */
export interface Block {
  mark: string | null;
  language: string;
  text: string;
}

export function blocksOf(page: string): Block[] {
  return [...page.matchAll(/(?:<!-- ([^\n]*?) -->\n)?```(\w*)\n([\s\S]*?)```/g)].map(([, mark, language, text]) => ({
    mark: mark ?? null,
    language: language ?? '',
    text: text ?? '',
  }));
}

/** The cells of the table below a comment, headings and ruler left out. @throws when there is none */
export function rowsBelow(page: string, mark: string): string[][] {
  const table = page.split(`<!-- ${mark} -->\n`)[1]?.split('\n\n')[0];
  if (table === undefined) throw new Error(`README.md has no table marked ${mark}`);
  return table
    .trim()
    .split('\n')
    .slice(2)
    .map((line) => line.split(/(?<!\\)\|/).slice(1, -1))
    .map((cells) => cells.map((cell) => cell.trim()));
}

/** The page with every file and every table in it as they are now. */
export async function filledPage(page: string): Promise<string> {
  let filled = page;
  for (const [whole, name] of page.matchAll(/<!-- file: (\S+) -->\n```\w*\n[\s\S]*?```/g)) {
    const content = await readFile(path.join(root, name ?? ''), 'utf8');
    filled = filled.replace(whole, () =>
      whole.replace(/(```\w*\n)[\s\S]*```/, (_, opening) => `${opening}${content}\`\`\``),
    );
  }
  for (const [whole, name] of page.matchAll(/<!-- table: (\w+) -->\n[\s\S]*?<!-- end -->/g)) {
    const make = TABLES[name ?? ''];
    if (!make) throw new Error(`README.md asks for table ${name}; there are ${Object.keys(TABLES).join(', ')}`);
    filled = filled.replace(whole, () => `<!-- table: ${name} -->\n${make()}\n<!-- end -->`);
  }
  return filled;
}

const code = (text: string): string => `\`${text}\``;

function markdown(headings: string[], rows: string[][]): string {
  const line = (cells: string[]): string => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(headings), `|${headings.map(() => '---').join('|')}|`, ...rows.map(line)].join('\n');
}

interface JsonSchema {
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  not?: JsonSchema;
}

/** The names of an object's fields, those that may be left out in brackets; lists of objects show theirs. */
function fieldsOf(schema: z.ZodType): string {
  const shown = (json: JsonSchema): string =>
    Object.entries(json.properties ?? {})
      // Of a field that nothing may be given to, only who gives it is told.
      .filter(([, inner]) => inner.not === undefined)
      .map(([name, inner]) => {
        const items = inner.items?.properties ? `: [{${shown(inner.items)}}]` : '';
        return json.required?.includes(name) ? name + items : `[${name}${items}]`;
      })
      .join(', ');
  const text = shown(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }) as JsonSchema);
  return text === '' ? '' : code(text);
}

function commandRows(command: Command, before: string): string[][] {
  return command.commands.flatMap((inner) => {
    const call = `${before} ${inner.name()}`;
    if (inner.commands.length > 0) return commandRows(inner, call);
    const args = inner.registeredArguments.map((argument) => {
      const name = argument.name() + (argument.variadic ? '...' : '');
      return argument.required ? `<${name}>` : `[${name}]`;
    });
    const options = inner.options.map((option) => code(option.flags));
    return [[code([call, ...args].join(' ')), inner.description(), options.join(', ')]];
  });
}

/** Values that follow from the machine the page is made on, as they are for everybody. */
const DEFAULTS: Record<string, string> = {
  GYMBUS_RUNNER_ID: "the host's name",
  GYMBUS_DATA: '`/var/lib/gymbus` as root, else `~/.local/share/gymbus`',
  GYMBUS_CACHE: '`/var/cache/gymbus` as root, else `~/.cache/gymbus`',
};

function defaultOf(name: string, schema: z.ZodType): string {
  const known = DEFAULTS[name];
  if (known !== undefined) return known;
  const parsed = schema.safeParse(undefined);
  return parsed.success && parsed.data !== undefined ? code(String(parsed.data)) : '';
}

const { policies, setups, getters, metrics } = builtinFunctions;

const TABLES: Record<string, () => string> = {
  policies: () =>
    markdown(
      ['policy', 'what it does', '`params`'],
      [...policies.values()].map(({ name, summary, params }) => [code(name), summary, fieldsOf(params)]),
    ),
  setup: () =>
    markdown(
      ['type', 'what it does', '`parameters`'],
      [...setups.values()].map(({ type, summary, parameters }) => [code(type), summary, fieldsOf(parameters)]),
    ),
  getters: () =>
    markdown(
      ['getter', 'what it gets', 'parameters, beside `type`'],
      [...getters.values()].map(({ type, summary, parameters }) => [code(type), summary, fieldsOf(parameters)]),
    ),
  metrics: () =>
    markdown(
      ['metric', 'it is 1 when', '`rules` it compares with'],
      [
        ...[...metrics.values()].map(({ name, summary, expected }) => [
          code(name),
          summary,
          expected === null ? 'none' : fieldsOf(expected),
        ]),
        [code('infeasible'), "The policy's last action was `fail`: for tasks that cannot be done", 'none'],
      ],
    ),
  streams: () =>
    markdown(
      ['stream or bucket', 'subjects', 'what for'],
      streamDefinitions(busNames()).map(({ name, needed, initial }) => [
        code(name.replace(/^KV_/, '')) + (name.startsWith('KV_') ? ' (key-value)' : ''),
        name.startsWith('KV_') ? '' : (needed.subjects ?? []).map(code).join(', '),
        initial.description ?? '',
      ]),
    ),
  commands: () => markdown(['command', 'what it does', 'options'], commandRows(gymbusCommand(), 'gymbus')),
  configuration: () =>
    markdown(
      ['variable', 'default', 'what for'],
      Object.entries(CONFIGURATION).map(([name, schema]) => [
        code(name),
        defaultOf(name, schema),
        schema.description ?? '',
      ]),
    ),
};
