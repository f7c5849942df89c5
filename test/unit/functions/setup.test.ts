import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type JobContext, SetupError } from '../../../functions/contract.ts';
import { type Guest, GuestSilent } from '../../../functions/guest.ts';
import { builtinFunctions } from '../../../functions/registry.ts';
import { runSetup, type SetupRun } from '../../../functions/setup/run.ts';
import type { SetupStep } from '../../../schemas/index.ts';
import { contextOf, job, LocalGuest, never } from './local-guest.ts';

let guest: LocalGuest;
beforeEach(() => {
  guest = new LocalGuest();
});
afterEach(() => guest[Symbol.dispose]());

async function setUp(
  steps: { type: string; parameters?: unknown }[],
  {
    context = contextOf(job()),
    signal = never,
    on = guest as Guest,
  }: { context?: JobContext; signal?: AbortSignal; on?: Guest } = {},
): Promise<SetupRun[]> {
  const runs: SetupRun[] = [];
  const listener = { started: () => {}, ended: async (run: SetupRun) => void runs.push(run) };
  await runSetup(steps as SetupStep[], builtinFunctions, { guest: on, context }, signal, listener).catch((error) => {
    throw Object.assign(error, { runs });
  });
  return runs;
}
const execute = (parameters: object): { type: string; parameters: object } => ({ type: 'execute', parameters });
const read = async (name: string): Promise<string> => String(await guest.readFile(name, { maxBytes: 1e6 }));

describe('execute', () => {
  it('records what a command does, a non-zero exit too, and goes on', async () => {
    const runs = await setUp([
      execute({ command: 'echo out; echo err >&2; exit 3', shell: true, stdout: 'o.txt', stderr: 'e.txt' }),
      { type: 'command', parameters: { command: ['touch', '~/made'] } },
    ]);
    expect(runs.map(({ record }) => record)).toEqual([
      { returncode: 3, stdout: 'out\n', stderr: 'err\n', stdout_file: 'o.txt', stderr_file: 'e.txt', runs: 1 },
      { returncode: 0, stdout: '', stderr: '', runs: 1 },
    ]);
    expect(await read('~/made'.replace('~', '/home/user'))).toBe('');
  });

  it('takes "true" for true and fills in password and screen', async () => {
    const [run] = await setUp([
      execute({ command: 'printf %s "{CLIENT_PASSWORD} {SCREEN_WIDTH_HALF}" {SCREEN_HEIGHT_HALF}', shell: 'true' }),
      execute({ command: ['echo', '{CLIENT_PASSWORD}'] }),
    ]);
    expect(run?.record.stdout).toBe('pass word 640360');
    expect(guest.commands[1]?.argv).toEqual(['echo', 'pass word']);
  });

  it('answers 127 for a program that is not there', async () => {
    const [run] = await setUp([execute({ command: 'no-such-program-anywhere' })]);
    expect(run?.record).toMatchObject({ returncode: 127, stderr: expect.stringContaining('ENOENT') });
  });

  it('fails on an exit code that was not expected, with what was printed', async () => {
    const steps = [
      execute({ command: 'echo why >&2; exit 4', shell: true, expected_returncodes: [0, 1] }),
      execute({ command: 'true' }),
    ];
    const error = await setUp(steps).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(SetupError);
    expect(error.message).toBe('step 0 (execute): exit code 4, expected 0 or 1: why');
    expect(error.runs).toMatchObject([{ record: { returncode: 4 }, error: { name: 'SetupError' } }]);
    await expect(
      setUp([execute({ command: 'exit 1', shell: true, expected_returncodes: [0, 1] })]),
    ).resolves.toHaveLength(1);
  });

  it('fails on a time-out, and the command is gone', async () => {
    const error = await setUp([execute({ command: 'sleep 30', timeout: 0.1 })]).catch((thrown) => thrown);
    expect(error.message).toMatch(/longer than 0.1 s; raise "timeout"/);
  });

  it('repeats until one of its conditions holds', async () => {
    const counting = 'echo x >> ~/n; wc -l < ~/n; [ $(wc -l < ~/n) -ge 3 ] && exit 7; exit 1';
    const [run] = await setUp([execute({ command: counting, shell: true, until: { returncode: 7 } })]);
    expect(run?.record).toMatchObject({ returncode: 7, runs: 3 });
    const [printed] = await setUp([
      execute({ command: counting, shell: true, until: { stdout: '5', returncode: 99 } }),
    ]);
    expect(printed?.record.runs).toBe(2);
    await expect(setUp([execute({ command: 'true', until: {} })])).resolves.toMatchObject([{ record: { runs: 1 } }]);
  });

  it('ends a repetition that never holds when the set-up is told to stop', async () => {
    const steps = [execute({ command: 'false', until: { returncode: 0 } })];
    const signal = AbortSignal.timeout(700);
    const error = await setUp(steps, { signal }).catch((thrown) => thrown);
    expect(error).toBe(signal.reason);
  });

  it('fails on a silent guest, whose error is the cause', async () => {
    const silent: Guest = Object.assign(Object.create(guest), {
      exec: () => Promise.reject(new GuestSilent('no answer in 5 s')),
    });
    const error = await setUp([execute({ command: 'true' })], { on: silent }).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(SetupError);
    expect(error.cause).toBeInstanceOf(GuestSilent);
  });

  it('keeps no more than a screenful of what is printed', async () => {
    const [run] = await setUp([execute({ command: 'head -c 100000 /dev/zero | tr "\\0" x', shell: true })]);
    expect(run?.record.stdout).toHaveLength(16_384);
  });
});

describe('launch and sleep', () => {
  it('starts a program and does not wait for it', async () => {
    const began = performance.now();
    const [run] = await setUp([{ type: 'launch', parameters: { command: ['sleep', '2'] } }]);
    expect(run?.record.pid).toBeGreaterThan(0);
    expect(performance.now() - began).toBeLessThan(1_500);
    process.kill(run?.record.pid ?? 0);
  });

  it('fails when the image has no such program', async () => {
    await expect(setUp([{ type: 'launch', parameters: { command: ['google-chrome-of-no-image'] } }])).rejects.toThrow(
      /the image has no program "google-chrome-of-no-image" to launch/,
    );
  });

  it('sleeps, and wakes when told to stop', async () => {
    const began = performance.now();
    await setUp([{ type: 'sleep', parameters: { seconds: 0.2 } }]);
    expect(performance.now() - began).toBeGreaterThan(190);
    await expect(
      setUp([{ type: 'sleep', parameters: { seconds: 60 } }], { signal: AbortSignal.timeout(50) }),
    ).rejects.toThrow(/timeout/i);
  });
});

describe('upload_file', () => {
  const upload = (...files: object[]) => [{ type: 'upload_file', parameters: { files } }];

  it('writes files of the job and of its inputs, under the home where the path is not whole', async () => {
    const context = contextOf(job(), { 'inputs/b1/deep/x.txt': 'from the bucket' });
    const [run] = await setUp(
      upload(
        { path: '~/Desktop/new/a.bin', content_base64: Buffer.from([0, 255]).toString('base64') },
        { path: 'b.txt', s3_key: 'deep/x.txt' },
        { path: '/home/user/c.txt', s3_key: 'inputs/b1/deep/x.txt' },
      ),
      { context },
    );
    expect(await guest.readFile('/home/user/Desktop/new/a.bin', { maxBytes: 9 })).toEqual(Buffer.from([0, 255]));
    expect(await read('/home/user/b.txt')).toBe('from the bucket');
    expect(run?.record.files).toEqual([
      { path: '/home/user/Desktop/new/a.bin', bytes: 2 },
      { path: '/home/user/b.txt', bytes: 15 },
      { path: '/home/user/c.txt', bytes: 15 },
    ]);
  });

  it('fails where the guest refuses, saying which were written', async () => {
    const content_base64 = 'eA==';
    const error = await setUp(upload({ path: 'a', content_base64 }, { path: '/etc/b', content_base64 })).catch(
      (e) => e,
    );
    expect(error.message).toMatch(/cannot write \/etc\/b: permission denied \(EACCES\)/);
    expect(error.runs[0].record.files).toHaveLength(1);
  });

  it('hands on what the storage throws', async () => {
    const error = await setUp(upload({ path: 'a', s3_key: 'absent' })).catch((thrown) => thrown);
    expect(error.cause.message).toBe('no object inputs/b1/absent');
  });
});

describe('download', () => {
  const picture = Buffer.from(Array.from({ length: 50_000 }, (_, i) => i % 251));
  let server: http.Server;
  let base: string;
  let requests: string[];
  let failures = 0;

  beforeEach(async () => {
    requests = [];
    server = http.createServer((request, response) => {
      requests.push(request.url ?? '');
      const url = new URL(request.url ?? '', 'http://x');
      if (url.pathname === '/file') return response.end(picture);
      if (url.pathname === '/away' && failures-- > 0) return response.writeHead(503).end();
      if (url.pathname === '/away') return response.end('at last');
      if (url.pathname === '/broken' && failures-- > 0) {
        response.writeHead(200, { 'content-length': 100 }).write('half');
        return setTimeout(() => response.destroy(), 20);
      }
      if (url.pathname === '/broken') return response.end('whole');
      if (url.pathname === '/moved') return response.writeHead(302, { location: '/file' }).end();
      if (url.pathname === '/loop') return response.writeHead(301, { location: '/loop' }).end();
      if (url.pathname === '/to') return response.writeHead(302, { location: url.searchParams.get('url') ?? '' }).end();
      if (url.pathname === '/endless') {
        const more = setInterval(() => response.write(Buffer.alloc(100_000)), 1);
        return response.on('close', () => clearInterval(more));
      }
      return response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterEach(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  const fetchFile = (url: string, allowPrivate = true, maxBytes = 1_000_000) =>
    setUp([{ type: 'download', parameters: { files: [{ url, path: 'got' }] } }], {
      context: { ...contextOf(job(), { 'inputs/b1/a': 'mine' }), downloads: { allowPrivate, maxBytes } },
    });

  it.each(['/file', '/moved'])('fetches %s, byte for byte', async (where) => {
    await fetchFile(base + where);
    const got = await guest.readFile('/home/user/got', { maxBytes: 1e6 });
    expect(createHash('sha256').update(got).digest('hex')).toBe(createHash('sha256').update(picture).digest('hex'));
  });

  it('tries three times when the server is away or breaks off', async () => {
    failures = 2;
    await fetchFile(`${base}/away`);
    expect(await read('/home/user/got')).toBe('at last');
    failures = 1;
    await fetchFile(`${base}/broken`);
    expect(await read('/home/user/got')).toBe('whole');
    failures = 3;
    requests = [];
    await expect(fetchFile(`${base}/away`)).rejects.toThrow(/answered 503/);
    expect(requests).toHaveLength(3);
  });

  it('asks once for what is not there, and says so without the query', async () => {
    await expect(fetchFile(`${base}/none?token=secret`)).rejects.toThrow(/\/none answered 404 Not Found$/);
    expect(requests).toHaveLength(1);
  });

  it('stops at the size limit and at a loop', async () => {
    await expect(fetchFile(`${base}/file`, true, 10_000)).rejects.toThrow(/larger than the 10000 bytes/);
    await expect(fetchFile(`${base}/endless`, true, 200_000)).rejects.toThrow(/larger than the 200000 bytes/);
    await expect(fetchFile(`${base}/loop`)).rejects.toThrow(/redirects more than 10 times/);
  });

  it('follows no redirect to another kind of address', async () => {
    await expect(fetchFile(`${base}/to?url=file:///etc/passwd`)).rejects.toThrow(/only http and https/);
    await expect(fetchFile(`${base}/to?url=http://`)).rejects.toThrow(/redirects to what is no address/);
  });

  it('never reaches this host or a private network, however its address is written', async () => {
    const port = new URL(base).port;
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '0x7f.1', '2130706433', '[::ffff:127.0.0.1]', '0.0.0.0']) {
      await expect(fetchFile(`http://${host}:${port}/file`, false), host).rejects.toThrow(/jobs may not reach it/);
    }
    for (const host of ['169.254.169.254', '10.0.0.1', '192.168.1.1', '100.64.0.1', '[fe80::1]', '[fd00::1]']) {
      await expect(fetchFile(`http://${host}/latest/meta-data/`, false), host).rejects.toThrow(/jobs may not reach it/);
    }
    expect(requests).toEqual([]);
  });

  it("reads the batch's inputs from its own bucket only", async () => {
    await fetchFile('s3://gymbus/inputs/b1/a', false);
    expect(await read('/home/user/got')).toBe('mine');
    await expect(fetchFile('s3://other/inputs/b1/a')).rejects.toThrow(/not in bucket gymbus/);
    await expect(fetchFile('s3://gymbus/inputs/b2/a')).rejects.toThrow(/not a file under inputs\/b1\//);
    await expect(fetchFile('s3://gymbus/batches/b1/jobs/j/result.json')).rejects.toThrow(/not a file under/);
  });

  it('leaves a file that was there alone when the download fails', async () => {
    writeFileSync(path.join(guest.home, 'got'), 'old');
    await expect(fetchFile(`${base}/none`)).rejects.toThrow();
    expect(await read('/home/user/got')).toBe('old');
  });
});
