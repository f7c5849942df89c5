import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Lookup } from '../../functions/download/lookup.ts';
import { AttemptNetwork } from '../../runner/job/attempt-network.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { makeAuthority } from '../support/certificates.ts';
import { silent } from '../support/nats.ts';
import { available } from '../support/requirement.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

const ALLOWED = 'allowed.example';
const DENIED = 'denied.example';
/** Of this machine, for the servers to have the web's own ports there. */
const HERE = '127.0.0.80';
/** The image built and its template booted with each application started once, all under emulation. */
const START_MS = 40 * 60_000;
/** The browser's start; then a page. */
const OPEN_MS = 10 * 60_000;
/** Policies of the browser are read from all files of this folder: with this one it trusts the test's authority. */
const POLICY = '/etc/chromium/policies/managed/test-authority.json';

/** A page that says by what it came, and asks for nothing more. */
const page = (title: string): string =>
  `<!doctype html><title>${title}</title><link rel="icon" href="data:,"><h1>${title}</h1><p>Brought by the test.</p>`;

/** The browser of the office image, and the web as its proxy finds it: every name leads to the test's own two servers. */
describe.skipIf(!available('vm') || !available('reflink'))('Chromium in a guest whose job asked for a host', () => {
  const seen: string[] = [];
  const looked: string[] = [];
  const lookup: Lookup = (name, _options, done) => {
    looked.push(name);
    done(null, [{ address: HERE, family: 4 }]);
  };
  let folder: string;
  let servers: http.Server[];
  let vm: Fixture;
  let replica: VirtualReplica;
  let network: AttemptNetwork;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'gymbus-office-network-'));
    const authority = await makeAuthority(folder);
    const { cert, key } = await authority.issue('web', `DNS:${ALLOWED}, DNS:${DENIED}`);
    const answer =
      (scheme: string): http.RequestListener =>
      ({ headers, url }, response) => {
        seen.push(`${scheme}://${headers.host}${url}`);
        response.setHeader('content-type', 'text/html').end(page(`By ${scheme}`));
      };
    const sealed = { cert: await readFile(cert), key: await readFile(key) };
    servers = [http.createServer(answer('http')), https.createServer(sealed, answer('https'))];
    for (const [n, port] of [80, 443].entries()) await once(servers[n]?.listen(port, HERE) as http.Server, 'listening');
    vm = await openFixture('test-office-network', {}, 'office');
    replica = await vm.replica('leased');
    network = new AttemptNetwork(replica, { hosts: [ALLOWED], allowPrivate: true, lookup }, silent);
    await network.open(never);
    const trusted = new X509Certificate(await readFile(authority.caFile)).raw.toString('base64');
    await guestShell(replica, `echo '${JSON.stringify({ CACertificates: [trusted] })}' > ${POLICY}`, 'root');
  }, START_MS);
  afterAll(async () => {
    network?.[Symbol.dispose]();
    await vm?.[Symbol.asyncDispose]();
    for (const server of servers ?? []) server.close();
    if (folder) await rm(folder, { recursive: true });
  });

  /** Has the browser go where a user types it to, starting it where it does not run, until its window and its page say so. */
  async function open(address: string, title: string, text: string): Promise<void> {
    if (await guestShell(replica, 'pgrep -x chromium || true')) await keys('ctrl+l', `type ${address}`, 'Return');
    else await guestShell(replica, `chromium ${address} > /tmp/chromium.log 2>&1 &`);
    const titles = () => guestShell(replica, 'wmctrl -l');
    await expect.poll(titles, { timeout: OPEN_MS, interval: 1_000 }).toContain(`${title} - Chromium`);
    // As a user copies it: there when it is drawn, and not before.
    const copied = async (): Promise<string> => {
      await keys('ctrl+a', 'ctrl+c');
      return guestShell(replica, 'timeout 5 xclip -o -selection clipboard 2>&1 || true');
    };
    await expect.poll(copied, { timeout: OPEN_MS, interval: 2_000 }).toContain(text);
    const pictures = process.env.GYMBUS_TEST_PICTURES;
    const picture = await replica.screenshot(never);
    if (pictures) await writeFile(path.join(pictures, `${address.replace(/\W+/g, '-')}.png`), picture);
  }

  async function keys(...each: string[]): Promise<void> {
    const commands = each.map((it) => (it.startsWith('type ') ? `xdotool ${it}` : `xdotool key ${it}`));
    await guestShell(replica, commands.join(' && sleep 1 && '));
  }

  const use = (host: string, port: number) => network.use().find((row) => row.host === host && row.port === port);

  it(
    'shows its page by http',
    async () => {
      await open(`http://${ALLOWED}/`, 'By http', 'Brought by the test.');
      expect(seen).toEqual([`http://${ALLOWED}/`]);
      expect(use(ALLOWED, 80)).toMatchObject({ connections: 1, refused: 0, failed: 0 });
    },
    OPEN_MS,
  );

  it(
    'shows its page by https, whose certificate it has checked itself',
    async () => {
      seen.length = 0;
      await open(`https://${ALLOWED}/`, 'By https', 'Brought by the test.');
      expect(seen).toEqual([`https://${ALLOWED}/`]);
      expect(use(ALLOWED, 443)).toMatchObject({ refused: 0, failed: 0, received_bytes: expect.any(Number) });
    },
    OPEN_MS,
  );

  it(
    'shows an error for another host, of which nobody looks up even the name',
    async () => {
      seen.length = 0;
      looked.length = 0;
      await open(`https://${DENIED}/`, DENIED, 'ERR_TUNNEL_CONNECTION_FAILED');
      await open(`http://${DENIED}/`, DENIED, `gymbus: this job may not reach ${DENIED}:80`);
      expect([seen, looked]).toEqual([[], []]);
      expect(use(DENIED, 443)).toMatchObject({ connections: 0, failed: 0, received_bytes: 0 });
      expect(use(DENIED, 443)?.refused).toBeGreaterThan(0);
    },
    2 * OPEN_MS,
  );

  it('asked for nothing that nobody wanted', () => {
    const wanted = [`${ALLOWED}:80`, `${ALLOWED}:443`, `${DENIED}:443`, `${DENIED}:80`];
    expect(network.use().map(({ host, port }) => `${host}:${port}`)).toEqual(wanted);
  });
});
