import { quote } from '../../schemas/index.ts';

/** Of a pattern that names no port: HTTP and HTTPS. */
const WEB_PORTS: readonly number[] = [80, 443];

interface Pattern {
  /** With `*.` before it where all names below it are meant. */
  name: string;
  ports: readonly number[];
}

/** @param pattern one that `HostPattern` takes */
function parsePattern(pattern: string): Pattern {
  const [name = '', port] = pattern.split(':');
  return { name, ports: port === undefined ? WEB_PORTS : [Number(port)] };
}

/** Of a name, or of a pattern of names: all of them. `*.example.org` covers what is below `example.org`, not that itself. */
function covers(pattern: string, name: string): boolean {
  return pattern === name || (pattern.startsWith('*.') && name.endsWith(pattern.slice(1)));
}

function isAllowed(patterns: readonly Pattern[], name: string, port: number): boolean {
  return patterns.some((pattern) => pattern.ports.includes(port) && covers(pattern.name, name));
}

/** Whether hosts named by patterns include this one. @param name in lower case, without a port */
export function includesHost(hosts: readonly string[], name: string, port: number): boolean {
  // A name has no star: what a guest sends is no pattern.
  return !name.includes('*') && isAllowed(hosts.map(parsePattern), name, port);
}

/**
 * What a job asks for that the policy of its image does not allow.
 * @returns one line a host, with the field, the value and the remedy
 */
export function hostProblems(asked: readonly string[], image: { name: string; allows: readonly string[] }): string[] {
  const policy = image.allows.map(parsePattern);
  return asked.flatMap((host, index) => {
    const { name, ports } = parsePattern(host);
    const missing = ports.filter((port) => !isAllowed(policy, name, port));
    if (missing.length === 0) return [];
    const allowed = image.allows.length > 0 ? `allows ${shown(image.allows)}` : 'allows none';
    const on = missing.length === ports.length ? '' : ` on port ${missing.join(', ')}`;
    return [
      `network.hosts.${index}: the policy of image ${image.name} does not allow ${quote(host)}${on}, it ${allowed}; leave it out, or have it added to network.hosts of the image's recipe`,
    ];
  });
}

const MOST_SHOWN = 8;

/** Hosts in a message; of very many the first. */
export function shown(hosts: readonly string[]): string {
  const more = hosts.length > MOST_SHOWN ? ` and ${hosts.length - MOST_SHOWN} more` : '';
  return hosts.slice(0, MOST_SHOWN).join(', ') + more;
}
