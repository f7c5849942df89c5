import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { toolPath } from './command.ts';

/**
 * The host's own package sources for `suite`, as one-line entries for mmdebstrap, so that a build uses the mirrors this
 * machine was set up with. Empty (then mmdebstrap's defaults hold) when the host runs another release.
 */
export async function hostAptSources(suite: string, etc = '/etc/apt'): Promise<string[]> {
  const texts: { name: string; text: string }[] = [];
  for (const name of ['sources.list', ...(await namesIn(join(etc, 'sources.list.d'), 'sources.list.d/'))]) {
    const text = await readFile(join(etc, name), 'utf8').catch(() => '');
    if (text) texts.push({ name, text });
  }
  const entries = texts.flatMap(({ name, text }) => (name.endsWith('.sources') ? deb822(text) : oneLine(text)));
  const wanted = new Set([suite, `${suite}-updates`, `${suite}-security`, `${suite}/updates`]);
  const lines = entries.filter((entry) => wanted.has(entry.suite) && entry.components.includes('main'));
  if (!lines.some((entry) => entry.suite === suite)) return [];
  return [
    ...new Set(lines.map(({ options, uri, suite: of }) => `deb${options ? ` [${options}]` : ''} ${uri} ${of} main`)),
  ];
}

interface Entry {
  readonly options: string;
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
}

function oneLine(text: string): Entry[] {
  return text.split('\n').flatMap((line): Entry[] => {
    const match = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)/.exec(line.trim());
    if (!match?.[2] || !match[3]) return [];
    return [
      { options: signedBy(match[1] ?? ''), uri: match[2], suite: match[3], components: (match[4] ?? '').split(/\s+/) },
    ];
  });
}

/** Of an entry's options only the key matters here. */
const signedBy = (options: string): string => /signed-by=\S+/i.exec(options)?.[0] ?? '';

function deb822(text: string): Entry[] {
  const stanzas = text
    .split('\n')
    .filter((line) => !line.startsWith('#'))
    .join('\n')
    .split(/\n\s*\n/);
  return stanzas.flatMap((stanza) => {
    const fields = new Map<string, string>();
    for (const [, name = '', value = ''] of stanza.matchAll(/^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)/gm)) {
      fields.set(name.toLowerCase(), value.replace(/\s+/g, ' ').trim());
    }
    const words = (name: string) => (fields.get(name) ?? '').split(' ').filter(Boolean);
    if (fields.get('enabled') === 'no' || !words('types').includes('deb')) return [];
    const key = fields.get('signed-by') ?? '';
    const options = key.startsWith('/') ? `signed-by=${key}` : '';
    return words('uris').flatMap((uri) =>
      words('suites').map((suite) => ({ options, uri, suite, components: words('components') })),
    );
  });
}

/** How this machine's apt fetches (proxies, time-outs, date checks), as a configuration for mmdebstrap's apt. */
export async function hostAptOptions(): Promise<string> {
  const { stdout } = await execa('apt-config', ['dump', '--format', '%f "%v";%n', 'Acquire'], {
    env: { PATH: toolPath },
    timeout: 30_000,
  });
  const kept = stdout
    .split('\n')
    .filter((line) => /^Acquire::(https?|ftp|Check-|Retries|ForceIPv|Queue-)/i.test(line) && !line.endsWith(' "";'));
  return `${kept.join('\n')}\n`;
}

async function namesIn(directory: string, prefix: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  return names
    .filter((name) => /\.(list|sources)$/.test(name))
    .sort()
    .map((name) => `${prefix}${name}`);
}
