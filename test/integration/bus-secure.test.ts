import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { natsServerConfig } from '../../infra/nats-config.ts';
import { BusRefused } from '../../runner/bus/errors.ts';
import { type BusSettings, openBus } from '../../runner/bus/index.ts';
import { eventually, jobsLeft, publishJob } from '../support/bus-jobs.ts';
import { type Authority, makeAuthority } from '../support/certificates.ts';
import { runGymbus } from '../support/command.ts';
import { openTestBus, recordingLog, silent, startNats } from '../support/nats.ts';
import { type OperatedNats, startOperatedNats, type TlsFiles, tlsOf } from '../support/nats-operator.ts';

let folder: string;
let authority: Authority;
let nats: OperatedNats;
let credentialsFile: string;

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-secure-'));
  authority = await makeAuthority(folder);
  nats = await startOperatedNats(await authority.issue('nats', 'IP:127.0.0.1,DNS:localhost'));
  credentialsFile = await nats.credentials('anything');
});
afterAll(async () => {
  await nats?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const secure = () => ({ caFile: authority.caFile, credentialsFile });

/** What a command or a runner says; it must not wait for what only a person can mend. */
async function refusal(over: Partial<BusSettings>): Promise<string> {
  const settings = { servers: [nats.server.url], name: 'test', log: silent, ...secure() };
  const opening = openBus({ ...settings, ...over, signal: AbortSignal.timeout(10_000) });
  const error = await opening.then(
    async (bus) => {
      await bus[Symbol.asyncDispose]();
      return new Error('it was let in');
    },
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(BusRefused);
  return (error as Error).message;
}

/** A server with TLS and no accounts. */
const startTls = (tls: TlsFiles) =>
  startNats({ config: (port, storeDir) => natsServerConfig({ host: '127.0.0.1', port, storeDir }) + tlsOf(tls) });

describe('over TLS, with credentials', () => {
  it.each(['nats', 'tls'])('a job is published to %s://, and again after the server was killed', async (scheme) => {
    const { server } = nats;
    await using bus = await openTestBus(server, { ...secure(), servers: [`${scheme}://localhost:${server.port}`] });
    const before = await jobsLeft(bus);
    await publishJob(bus, { batch_id: scheme, job_id: 'a' });
    await server.kill();
    await eventually(() => !bus.connected);
    await server.start();
    await eventually(() => bus.connected);
    await publishJob(bus, { batch_id: scheme, job_id: 'b' });
    expect(await jobsLeft(bus)).toBe(before + 2);
  });

  it('gymbus takes both files by environment, and says which is wrong', async () => {
    const ensure = (env: Record<string, string>) =>
      runGymbus(['streams', 'ensure'], {
        ...{ NATS_URL: `tls://127.0.0.1:${nats.server.port}`, GYMBUS_DATA: folder },
        ...{ NATS_CA: authority.caFile, NATS_CREDS: credentialsFile, ...env },
      });
    const { exitCode, stdout, stderr } = await ensure({ GYMBUS_PREFIX: 'by-command' });
    expect(exitCode, stderr).toBe(0);
    expect(stdout).toContain('made BY_COMMAND_JOBS');
    for (const [env, said] of [
      [{ NATS_CA: '' }, 'set NATS_CA to the file of its certificate authority'],
      [{ NATS_CA: '/no/such/file' }, 'NATS_CA=/no/such/file: ENOENT'],
      [{ NATS_CREDS: '' }, 'refuses these credentials'],
      [{ NATS_CREDS: '/no/such/file' }, 'NATS_CREDS=/no/such/file: ENOENT'],
    ] as const) {
      const wrong = await ensure(env);
      expect(wrong, said).toMatchObject({ exitCode: 1, stdout: '' });
      expect(wrong.stderr).toContain(said);
      expect(wrong.stderr).not.toContain('    at ');
    }
  });
});

describe('refuses a certificate', () => {
  it('whose authority it was not given, or another one', async () => {
    const other = await makeAuthority(folder, 'another authority');
    for (const caFile of [undefined, other.caFile]) {
      expect(await refusal({ caFile })).toMatch(/certificate .* is not trusted .*set NATS_CA to the file/);
    }
  });

  it('only for others: one for the address by which the server is reached will do', async () => {
    await using server = await startTls(await authority.issue('address', 'IP:127.0.0.1'));
    await using bus = await openTestBus(server, { caFile: authority.caFile });
    expect(bus.connected).toBe(true);
    expect(await refusal({ servers: [`localhost:${server.port}`] })).toMatch(/is for another name/);
  });

  it('for another name than the server is reached by', async () => {
    await using server = await startTls(await authority.issue('misnamed', 'DNS:nats.lab.example'));
    expect(await refusal({ servers: [server.url] })).toMatch(
      /is for another name .*give NATS_URL a name that is in it/,
    );
  });

  it('that has expired', async () => {
    await using server = await startTls(await authority.issue('expired', 'IP:127.0.0.1', -1));
    expect(await refusal({ servers: [server.url] })).toMatch(
      /is not valid now .*renew it, or set this machine's clock/,
    );
  });

  it.each([
    ['is not there', () => path.join(folder, 'nothing.pem'), /NATS_CA=.*nothing\.pem: ENOENT/],
    ['is a folder', () => folder, /NATS_CA=.*: EISDIR/],
    ['has none in it', () => path.join(folder, 'empty.pem'), /empty\.pem: there is no certificate in it/],
  ])('when the file of authorities %s', async (_, file, message) => {
    await writeFile(path.join(folder, 'empty.pem'), '-----BEGIN NOTHING-----\n');
    expect(await refusal({ caFile: file() })).toMatch(message);
  });
});

it.each([
  ['NATS_CA', (port: number) => ({ servers: [`nats://127.0.0.1:${port}`] })],
  ['tls://', (port: number) => ({ servers: [`tls://127.0.0.1:${port}`], caFile: undefined })],
])('refuses a server without TLS when %s asks for it', async (_, over) => {
  await using server = await startNats({ users: [{ user: 'a', password: 's3cret' }] });
  const settings = { credentialsFile: undefined, user: 'a', password: 's3cret' };
  expect(await refusal({ ...settings, ...over(server.port) })).toMatch(
    /speaks no TLS.*turn it on there, or leave out NATS_CA and write nats:\/\//,
  );
});

describe('credentials', () => {
  it.each([
    ['that are not there', async () => path.join(folder, 'nothing.creds'), /NATS_CREDS=.*nothing\.creds: ENOENT/],
    ['that are a folder', async () => folder, /NATS_CREDS=.*: EISDIR/],
    [
      'that are a password',
      async () => {
        await writeFile(path.join(folder, 'password.creds'), 's3cret\n');
        return path.join(folder, 'password.creds');
      },
      /NATS_CREDS=.*password\.creds: .*not a credentials file/,
    ],
    [
      'without a seed',
      async () => {
        const jwtOnly = '-----BEGIN NATS USER JWT-----\neyJ0.eyJ.x\n------END NATS USER JWT------\n';
        await writeFile(path.join(folder, 'half.creds'), jwtOnly);
        return path.join(folder, 'half.creds');
      },
      /NATS_CREDS=.*half\.creds: .*not a credentials file/,
    ],
  ])('%s are refused by the name of the file', async (_, file, message) => {
    const said = await refusal({ credentialsFile: await file() });
    expect(said).toMatch(message);
    expect(said).not.toContain('s3cret');
  });

  it('of another operator, expired ones, and none at all are refused with what to check', async () => {
    await using foreign = await startOperatedNats();
    const expired = await nats.credentials('expired', undefined, new Date(Date.now() - 60_000));
    for (const file of [await foreign.credentials('foreign'), expired, undefined]) {
      expect(await refusal({ credentialsFile: file })).toMatch(/refuses these credentials .*check NATS_CREDS/);
    }
  });

  it('may be replaced while a runner runs; from a file that is broken meanwhile it goes on with those it had', async () => {
    const file = await nats.credentials('replaced');
    const { log, lines } = recordingLog();
    await using bus = await openTestBus(nats.server, { ...secure(), credentialsFile: file, log });
    const again = async (): Promise<void> => {
      await nats.server.kill();
      await eventually(() => !bus.connected);
      await nats.server.start();
      await eventually(() => bus.connected);
    };
    await writeFile(file, 'half of a fi');
    await again();
    expect(lines().map(({ msg }) => msg)).toContain('cannot read NATS credentials; using those read before');
    await nats.credentials('replaced');
    await again();
    expect(await jobsLeft(bus)).toBeGreaterThanOrEqual(0);
  });
});
