import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StorageRefused } from '../../runner/storage/errors.ts';
import { downloadAttempt, listAttempts } from '../../runner/storage/reader.ts';
import { waitForStorage } from '../../runner/storage/ready.ts';
import { putResult } from '../../runner/storage/result.ts';
import { ObjectStore, type S3Config } from '../../runner/storage/s3.ts';
import { objectKeys } from '../../schemas/index.ts';
import { type Authority, makeAuthority } from '../support/certificates.ts';
import { runGymbus } from '../support/command.ts';
import { recordingLog } from '../support/nats.ts';
import { never, openPlace, recordStep } from '../support/recording.ts';
import { samplePng, sampleResult } from '../support/samples.ts';
import { startVersitygw } from '../support/versitygw.ts';

/** Above what goes up in parts, through a client of its own. */
const LARGE_BYTES = 33 << 20;
const attempt = { batch: 'over-tls', job: 'rename-0007', attempt: '1-k3x9q2mv' };

let folder: string;
let authority: Authority;
let server: Awaited<ReturnType<typeof startVersitygw>>;

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-tls-'));
  authority = await makeAuthority(folder);
  server = await startVersitygw(await authority.issue('s3', 'IP:127.0.0.1'));
});
afterAll(async () => {
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

describe('with the authority of its certificate', () => {
  it('a whole attempt goes up, and comes down with every hash right', async () => {
    const place = await openPlace({ ...server, caFile: authority.caFile });
    const { store, log } = place;
    await waitForStorage(store, log, { createBucket: true, signal: never });
    const recording = await place.begin(attempt);
    const png = samplePng(80, 60);
    for (let step = 0; step < 4; step++) await recordStep(recording, step, png);
    await recording.diagnostics({ serialLog: randomBytes(LARGE_BYTES), lastPicture: png });
    const outcome = sampleResult(attempt);
    const manifest = await recording.finish({ outcome, versions: { gymbus: '0' } }, never);
    await recording[Symbol.asyncDispose]();
    await putResult(store, outcome, { signal: never });

    const [info] = await listAttempts(store, attempt.batch, attempt.job);
    expect(info).toMatchObject({ attempt: attempt.attempt, finished: true, objects: manifest.objects.length + 1 });
    const report = await downloadAttempt(store, info?.prefix ?? '', path.join(folder, 'down'));
    expect(report).toMatchObject({ finished: true, verified: manifest.objects.length, kept: 0 });
    expect(report.bytes).toBeGreaterThan(LARGE_BYTES);
    expect(await readFile(path.join(folder, 'down/step-0003.png'))).toEqual(png);
    const copy = await store.get(objectKeys.result(attempt.batch, attempt.job), 1 << 20);
    expect(JSON.parse(copy.toString())).toEqual(outcome);
    await place[Symbol.asyncDispose]();
  });

  it('gymbus get reads it by AWS_CA_BUNDLE, and without it says that it needs one', async () => {
    const env = {
      AWS_ENDPOINT_URL: server.endpoint,
      AWS_ACCESS_KEY_ID: server.credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: server.credentials.secretAccessKey,
      NATS_URL: 'nats://127.0.0.1:9',
      GYMBUS_DATA: folder,
    };
    const get = (bundle: string, into: string) =>
      runGymbus(['get', 'over-tls/rename-0007', path.join(folder, into)], { ...env, AWS_CA_BUNDLE: bundle });
    const got = await get(authority.caFile, 'by-command');
    expect(got, got.stderr).toMatchObject({ exitCode: 0, stdout: path.join(folder, 'by-command') });
    const untrusted = await get('', 'untrusted');
    expect(untrusted.exitCode).toBe(1);
    expect(untrusted.stderr).toMatch(/certificate is not trusted here: set AWS_CA_BUNDLE to the file of its authority/);
    const missing = await get(path.join(folder, 'nothing.pem'), 'missing');
    expect(missing.exitCode).toBe(1);
    expect(missing.stderr).toMatch(/AWS_CA_BUNDLE=.*nothing\.pem: .*ENOENT/);
    for (const { stderr } of [untrusted, missing]) expect(stderr).not.toContain('    at ');
  });
});

/** What a runner that starts says; it must not wait for what only a person can mend. */
async function refusal(over: Partial<S3Config>): Promise<string> {
  const { endpoint, credentials } = server;
  const start = async (): Promise<void> => {
    using store = new ObjectStore({ region: 'us-east-1', bucket: 'gymbus', endpoint, credentials, ...over });
    const { log } = recordingLog();
    await waitForStorage(store, log, { createBucket: false, signal: AbortSignal.timeout(10_000) });
  };
  const error = await start().catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(StorageRefused);
  return (error as Error).message;
}

describe('refuses, with the remedy,', () => {
  it('a certificate whose authority it was not given', async () => {
    expect(await refusal({})).toMatch(/certificate is not trusted here: set AWS_CA_BUNDLE/);
  });

  it('a certificate of another authority than the one given', async () => {
    const other = await makeAuthority(folder, 'another authority');
    expect(await refusal({ caFile: other.caFile })).toMatch(/certificate is not trusted here: set AWS_CA_BUNDLE/);
  });

  it.each([
    ['that is not there', () => path.join(folder, 'nothing.pem'), /nothing\.pem: .*ENOENT/],
    ['that is a folder', () => folder, /AWS_CA_BUNDLE=.*: .*EISDIR/],
    ['without a certificate in it', () => path.join(folder, 'empty.pem'), /empty\.pem: there is no certificate in it/],
  ])('a file of authorities %s', async (_, file, message) => {
    await writeFile(path.join(folder, 'empty.pem'), '-----BEGIN NOTHING-----\n');
    expect(await refusal({ caFile: file() })).toMatch(message);
  });

  it('a certificate for another name than the one it is reached by', async () => {
    const misnamed = await startVersitygw(await authority.issue('misnamed', 'DNS:s3.lab.example'));
    const message = await refusal({ endpoint: misnamed.endpoint, caFile: authority.caFile });
    await misnamed.stop();
    expect(message).toMatch(/its certificate is for another name: give AWS_ENDPOINT_URL a name that is in it/);
  });

  it('a certificate that has expired', async () => {
    const expired = await startVersitygw(await authority.issue('expired', 'IP:127.0.0.1', -1));
    const message = await refusal({ endpoint: expired.endpoint, caFile: authority.caFile });
    await expired.stop();
    expect(message).toMatch(
      /CERT_HAS_EXPIRED.*its certificate is not valid now: renew it, or set this machine's clock/,
    );
  });
});

it('http:// to a server that speaks TLS and says so, as those written in Go do, is refused with the remedy', async () => {
  const text = 'Client sent an HTTP request to an HTTPS server.\n';
  const plain = createServer((_, response) => response.writeHead(400).end(text)).listen(0, '127.0.0.1');
  await once(plain, 'listening');
  const { port } = plain.address() as AddressInfo;
  expect(await refusal({ endpoint: `http://127.0.0.1:${port}` })).toMatch(/check https:\/\/ .* in AWS_ENDPOINT_URL/);
  plain.closeAllConnections();
  plain.close();
});

it('a file of authorities that is wrong is nothing to an endpoint without TLS', () => {
  new ObjectStore({ region: 'us-east-1', bucket: 'gymbus', endpoint: 'http://127.0.0.1:9', caFile: '/nothing' })[
    Symbol.dispose
  ]();
});
