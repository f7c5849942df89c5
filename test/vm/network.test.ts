import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildImage } from '../../images/build.ts';
import { findRecipe } from '../../images/recipes.ts';
import { WebProxy } from '../../runner/job/web-proxy.ts';
import type { VirtualReplica } from '../../runner/replica/replica.ts';
import { quickJob } from '../support/fault-jobs.ts';
import { openGym, type TestGym } from '../support/gym.ts';
import { layVariant } from '../support/image-variant.ts';
import { cacheDir } from '../support/nats.ts';
import { expectSettled } from '../support/settled.ts';
import { type Fixture, guestShell, never, openFixture } from './fixture.ts';

const MIB = 2 ** 20;
const file = randomBytes(8 * MIB);
const sha256 = createHash('sha256').update(file).digest('hex');
/** Of this machine, and no address that programs reach without their proxy. */
const HOST = '127.0.0.2';

let server: http.Server;
let port: number;
beforeAll(async () => {
  server = http.createServer((request, response) => response.end(request.url === '/file' ? file : 'hello'));
  server.listen(0, HOST);
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => void server?.close());

/** Fetches an address as any program in the guest does, and prints the status and the hash of what came. */
const FETCH = `
import hashlib, sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen(sys.argv[1], timeout=300) as answer:
        print(answer.status, hashlib.sha256(answer.read()).hexdigest())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print(error)
`;

describe('a guest whose job asked for hosts', () => {
  let vm: Fixture;
  let replica: VirtualReplica;
  let proxy: WebProxy;
  let closed: string[];
  beforeAll(async () => {
    vm = await openFixture('test-network');
  });
  afterAll(() => vm?.[Symbol.asyncDispose]());
  beforeEach(async () => {
    closed = [];
    proxy = new WebProxy({ hosts: [`${HOST}:${port}`], allowPrivate: true });
    replica = await vm.replica('leased');
  });
  afterEach(async () => {
    proxy[Symbol.dispose]();
    await replica.discard();
  });

  const openNetwork = (): Promise<void> =>
    replica.openNetwork({ accept: (it) => proxy.accept(it), closed: (reason) => void closed.push(reason) }, never);

  async function run(program: string, ...args: string[]): Promise<string> {
    const argv = ['python3', '-c', program, ...args];
    const result = await replica.guest.exec({ argv, timeoutMs: 300_000 }, never);
    if (result.returncode !== 0) throw new Error(`${result.returncode}: ${result.stderr}`);
    return String(result.stdout).trim();
  }
  const fetched = (address: string): Promise<string> => run(FETCH, address);

  it('gets files whole, several at once, and is refused every other host', async () => {
    await openNetwork();
    const started = performance.now();
    const answers = await Promise.all(Array.from({ length: 3 }, () => fetched(`http://${HOST}:${port}/file`)));
    console.info(`3 x 8 MiB in ${Math.round(performance.now() - started)} ms`);
    expect(answers).toEqual(Array(3).fill(`200 ${sha256}`));
    expect(await fetched('http://evil.example/')).toMatch(
      new RegExp(`^403 gymbus: this job may not reach evil.example:80, its network.hosts are ${HOST}:${port}`),
    );
    // By CONNECT, as browsers do.
    const tunnelled = await run(
      `
import hashlib, http.client, sys
tunnel = http.client.HTTPConnection('127.0.0.1', 3128, timeout=300)
tunnel.set_tunnel(sys.argv[1], int(sys.argv[2]))
tunnel.request('GET', '/file')
print(hashlib.sha256(tunnel.getresponse().read()).hexdigest())`,
      HOST,
      String(port),
    );
    expect(tunnelled).toBe(sha256);
    const rows = proxy.use.read();
    expect(rows).toMatchObject([
      { host: HOST, port, connections: 4, refused: 0, failed: 0 },
      { host: 'evil.example', port: 80, connections: 0, refused: 1 },
    ]);
    expect(rows[0]?.received_bytes).toBeGreaterThan(32 * MIB);
    expect(closed).toEqual([]);
  });

  it('tells its programs the way, wherever they are started', async () => {
    await openNetwork();
    const way = 'http://127.0.0.1:3128';
    expect(await guestShell(replica, 'echo $http_proxy $https_proxy $HTTP_PROXY $HTTPS_PROXY $no_proxy')).toBe(
      `${way} ${way} ${way} ${way} localhost,127.0.0.1`,
    );
    expect(await guestShell(replica, 'env -i bash -lc "echo \\$https_proxy"', 'root')).toBe(way);
    // As a terminal of the desktop does.
    expect(await guestShell(replica, 'env -i HOME=/home/user bash -ic "echo \\$https_proxy" 2>/dev/null')).toContain(
      way,
    );
  });

  it('loses its network and nothing else when it writes garbage to the port', async () => {
    await openNetwork();
    await guestShell(replica, 'timeout 5 head -c 100000 /dev/zero > /dev/virtio-ports/gymbus.network || true', 'root');
    await expect.poll(() => closed, { timeout: 30_000 }).toEqual([expect.stringContaining('no known kind (0)')]);
    expect(await guestShell(replica, 'echo alive')).toBe('alive');
    expect((await replica.screenshot(never)).length).toBeGreaterThan(1_000);
    expect(replica.phase).toBe('leased');
    expect(await fetched(`http://${HOST}:${port}/`)).not.toMatch(/^200/);
    expect(proxy.use.read()).toEqual([]);
  });

  it('not at all has no way out, nor anything that runs for one', async () => {
    const connect = 'import socket; print(socket.socket().connect_ex(("127.0.0.1", 3128)))';
    expect(await run(connect)).toBe('111');
    expect(await guestShell(replica, 'env | grep -ic proxy || true')).toBe('0');
    expect(await guestShell(replica, 'ls /run/gymbus 2>&1 || true')).toContain('No such file');
    expect(await guestShell(replica, 'pgrep -fc "[g]ymbus-network" || true')).toBe('0');
    expect(await guestShell(replica, 'systemctl is-active gymbus-network.socket || true')).toBe('inactive');
    // The port is there, and what is written to it goes nowhere: its writer waits, and nothing else does.
    await guestShell(replica, 'timeout 3 head -c 8000000 /dev/zero > /dev/virtio-ports/gymbus.network || true', 'root');
    expect(replica.machine.network.readableLength).toBeLessThan(MIB);
    expect(await guestShell(replica, 'echo alive')).toBe('alive');
    expect(replica.phase).toBe('leased');
  });
});

describe('a job that asks for hosts', () => {
  let gym: TestGym;
  let cache: string;
  beforeAll(async () => {
    const image = await buildImage(findRecipe('debian-desktop'), { cacheDir });
    cache = await mkdtemp(path.join(tmpdir(), 'gymbus-cache-'));
    await layVariant(cache, image, [`${HOST}:${port}`]);
    gym = await openGym();
    await gym.start('network', { GYMBUS_CACHE: cache });
  });
  afterAll(async () => {
    await gym?.[Symbol.asyncDispose]();
    await rm(cache, { recursive: true, force: true });
  });

  const fetching = (target: string) => ({ type: 'execute', parameters: { command: ['python3', '-c', FETCH, target] } });

  it('reaches them from its set-up on, and its result says so', async () => {
    const job = quickJob('network', {
      network: { hosts: [`${HOST}:${port}`] },
      setup: [fetching(`http://${HOST}:${port}/`), fetching('http://evil.example/')],
      limits: { setup_s: 240 },
    });
    await gym.publish(job);
    const result = await expectSettled(gym, job);
    expect(result.network).toMatchObject([
      { host: HOST, port, connections: 1, refused: 0, received_bytes: expect.any(Number) },
      { host: 'evil.example', port: 80, connections: 0, refused: 1 },
    ]);
  });

  it('that the policy of its image does not allow is dead, and says why', async () => {
    const job = quickJob('network', { job_id: 'forbidden', network: { hosts: ['evil.example'] } });
    await gym.publish(job);
    const result = await expectSettled(gym, job, { status: 'dead', attempts: 0 });
    expect(result.failure?.class).toBe('invalid_job');
    expect(result.failure?.message).toContain(`does not allow "evil.example", it allows ${HOST}:${port}; leave it out`);
  });
});
