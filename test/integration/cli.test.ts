import { chmod, chown, cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import type { Command } from 'commander';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { gymbusCommand } from '../../runner/cli/program.ts';
import { VERSION } from '../../runner/cli/version.ts';
import { runGymbus } from '../support/command.ts';
import { freePort, startNats } from '../support/nats.ts';
import { startImpostor } from '../support/nats-impostor.ts';
import { gymbusCommand as gymbusProgram } from '../support/runner-process.ts';

const NOBODY = 65_534;
const testProgram = path.resolve(import.meta.dirname, '../../infra/bin/test.mjs');

let folder: string;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-cli-'));
  const nowhere = await freePort();
  // Compiles, where nothing else has.
  await runGymbus(['--version'], {});
  env = {
    ...{ GYMBUS_DATA: folder, NATS_URL: `nats://127.0.0.1:${nowhere}` },
    ...{ AWS_ENDPOINT_URL: `http://127.0.0.1:${nowhere}`, AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' },
  };
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const gymbus = (...args: string[]) => runGymbus(args, env);

/** Each command as it is called, those inside others too. */
function callsOf(command: Command, before: string[] = []): string[][] {
  return command.commands.flatMap((inner) => {
    const call = [...before, inner.name()];
    return [call, ...callsOf(inner, call)];
  });
}

describe('help', () => {
  it.each(callsOf(gymbusCommand()).map((call) => call.join(' ')))('of %s', async (call) => {
    const { exitCode, stdout, stderr } = await gymbus(...call.split(' '), '--help');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(stdout).toMatch(new RegExp(`^Usage: gymbus ${call}\\b`));
  });

  it('lists every command, and what exit codes mean', async () => {
    const { exitCode, stdout } = await gymbus('--help');
    expect(exitCode).toBe(0);
    for (const name of gymbusCommand().commands) expect(stdout).toContain(`\n  ${name.name()}`);
    expect(stdout).toContain('Exit codes: 0 ');
  });

  it('of run lists every variable with its default', async () => {
    const { stdout } = await gymbus('run', '--help');
    expect(stdout).toMatch(/GYMBUS_DRAIN_S +.*\[20\]/);
    expect(stdout).toMatch(/NATS_URL +.*\[nats:\/\/127\.0\.0\.1:4222\]/);
  });

  it('and the version go to standard output', async () => {
    expect(await gymbus('--version')).toEqual({ exitCode: 0, stdout: VERSION, stderr: '' });
  });
});

describe('a wrong call exits with 2 and says what is wrong and where to look', () => {
  it.each([
    [[], 'Usage: gymbus'],
    [['frobnicate'], "unknown command 'frobnicate'"],
    [['submti'], 'Did you mean submit?'],
    [['streams', 'delete'], "unknown command 'delete'"],
    [['get'], "missing required argument 'batch/job'"],
    [['get', 'night-42'], 'write BATCH/JOB'],
    [['get', 'a/b', ''], '"" is no folder'],
    [['get', 'a/b', '--attempt', '../x'], '"../x" is no attempt'],
    [['results', 'a', 'b'], 'too many arguments'],
    [['results', 'a.b'], 'is no batch id'],
    [['watch', 'a', '--forever'], "unknown option '--forever'"],
    [['submit'], 'give either a file of job lines'],
    [['submit', 'jobs.jsonl', '--batch', 'b', '--params', '{}'], '--batch, --params: of OSWorld tasks'],
    [['submit', '--osworld', 'task.json'], '--osworld needs --batch ID and --policy NAME'],
    [['submit', '--osworld', 'task.json', '--batch', 'b', '--policy', 'p', '--params', '[]'], 'must be a JSON object'],
    [['submit', '/no/such/file'], 'cannot read /no/such/file: there is no such file'],
    [['submit', ''], 'cannot read "": there is no such file'],
    [['submit', 'x'.repeat(300)], 'xxx...: no file has so long a name'],
    [['submit', '/etc'], 'cannot read /etc: it is a folder; pass on what is in it: cat /etc/*.jsonl | gymbus submit -'],
    [['submit', '--osworld', '/etc', '--batch', 'b', '--policy', 'p'], 'name the tasks in it: --osworld /etc/*.json'],
    [['image', 'build', 'windows'], 'there is no recipe "windows"; recipes are debian-desktop, office'],
  ])('%j', async (args, said) => {
    const { exitCode, stdout, stderr } = await gymbus(...args);
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toContain(said);
    expect(stderr).not.toContain('    at ');
  });

  it('also when a variable is wrong', async () => {
    const { exitCode, stderr } = await runGymbus(['run'], { ...env, GYMBUS_ACTING: '0', GYMBUS_ACCEL: 'xen' });
    expect(exitCode).toBe(2);
    expect(stderr).toMatch(/GYMBUS_ACTING: .*"0".*\n.*GYMBUS_ACCEL: .*"xen".*\n.*gymbus run --help/);
  });
});

it('says so when what it found cannot be written: half of it looks like all of it', async () => {
  const script = `"${process.execPath}" "${gymbusProgram}" --version > /dev/full`;
  const { exitCode, stderr } = await execa('sh', ['-c', script], { env, reject: false });
  expect(exitCode).toBe(1);
  expect(stderr).toBe('gymbus: cannot write what it found (ENOSPC): what was written is not the whole');
});

describe('what is not there is said without a stack, and exits with 1', () => {
  const file = (): string => path.join(folder, 'job.jsonl');
  beforeAll(() =>
    writeFile(
      file(),
      '{"schema":"gymbus.job.v1","batch_id":"b","job_id":"j","image":"debian-desktop","instruction":"","policy":{"name":"random"}}',
    ),
  );

  it.each([[['results', 'b']], [['watch', 'b']], [['streams', 'ensure']], [['submit', '']]])(
    'the bus: %j',
    async (args) => {
      const { exitCode, stdout, stderr } = await gymbus(...args.map((arg) => arg || file()));
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
      expect(stderr).toMatch(/^gymbus: no NATS server answers at 127\.0\.0\.1:\d+ .*NATS_URL/);
      expect(stderr.split('\n')).toHaveLength(1);
    },
  );

  it('the bus, where nothing says where it is', async () => {
    const { NATS_URL: _, ...rest } = env;
    const { exitCode, stderr } = await runGymbus(['results', 'b'], { ...rest, NATS_URL: '' });
    expect(exitCode).toBe(1);
    // Another server of this machine may be at the usual port; without our credentials, or without our batch.
    if (!stderr.includes('no batch') && !stderr.includes('no streams')) {
      expect(stderr).toContain(
        `NATS_URL is not set, and no local stack runs on GYMBUS_DATA=${folder}; \`npx gymbus up\` starts one`,
      );
    }
  });

  it('S3, where nothing says where it is: not asked of AWS', async () => {
    const { AWS_ENDPOINT_URL: _, GYMBUS_BUCKET: __, ...rest } = env as Record<string, string>;
    const nowhere = { ...rest, NATS_URL: '', AWS_ENDPOINT_URL: '', GYMBUS_BUCKET: '' };
    const { exitCode, stderr } = await runGymbus(['get', 'b/j', path.join(folder, 'to')], nowhere);
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^gymbus: no local stack runs on GYMBUS_DATA=.*; for another S3 set AWS_ENDPOINT_URL/);
  });

  it('S3', async () => {
    const { exitCode, stderr } = await gymbus('get', 'b/j', path.join(folder, 'to'));
    expect(exitCode).toBe(1);
    expect(stderr).toMatch(/^gymbus: .*ECONNREFUSED.*; start S3, or set AWS_ENDPOINT_URL to where it runs$/);
  });

  it('the streams', async () => {
    await using server = await startNats();
    const there = { ...env, NATS_URL: server.url };
    for (const command of ['results', 'watch']) {
      const { exitCode, stderr } = await runGymbus([command, 'b'], there);
      expect(exitCode).toBe(1);
      expect(stderr).toContain('gymbus streams ensure');
    }
    const made = await runGymbus(['streams', 'ensure'], there);
    expect(made).toMatchObject({
      exitCode: 0,
      stdout: expect.stringMatching(/^made GYMBUS_JOBS, .*KV_GYMBUS_BATCHES$/),
    });
    const again = await runGymbus(['streams', 'ensure'], there);
    expect(again).toMatchObject({ exitCode: 0, stdout: 'all streams and buckets are there, as needed' });
    expect((await server.cli('stream', 'edit', 'GYMBUS_DEAD', '--force', '--max-age', '1h')).exitCode).toBe(0);
    const differs = await runGymbus(['streams', 'ensure'], there);
    expect(differs.exitCode).toBe(1);
    expect(differs.stderr).toMatch(
      /stream GYMBUS_DEAD is not as needed:\n +max_age: found 3600 s, needed 0\n +remedy: nats stream edit/,
    );
  });

  it('the local stack: env prints nothing that a shell could take for settings', async () => {
    const { exitCode, stdout, stderr } = await gymbus('env');
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toBe(`gymbus: no local stack answers on GYMBUS_DATA=${folder}; start one with \`npx gymbus up\``);
  });

  it('an image', async () => {
    const { exitCode, stderr } = await runGymbus(['run'], { ...env, GYMBUS_CACHE: folder });
    expect(exitCode).toBe(1);
    expect(stderr).toContain(
      `image debian-desktop is not in ${folder}; make it with: gymbus image build debian-desktop`,
    );
    const listed = await runGymbus(['image', 'ls'], { ...env, GYMBUS_CACHE: folder });
    expect(listed).toMatchObject({ exitCode: 0, stdout: '' });
    expect(listed.stderr).toBe(`no images in ${folder}; make one with: gymbus image build`);
  });
});

describe('who is not root', () => {
  let home: string;
  beforeAll(async () => {
    home = path.join(folder, 'home');
    await mkdir(home);
    await chmod(folder, 0o755);
    if (process.getuid?.() === 0) await chown(home, NOBODY, NOBODY);
  });

  const asNobody = async (...args: string[]) => {
    const drop =
      process.getuid?.() === 0 ? ['setpriv', `--reuid=${NOBODY}`, '--clear-groups', '--no-new-privs'] : ['env'];
    const [program = '', ...rest] = [...drop, process.execPath, ...args];
    const own = { HOME: home, GYMBUS_DATA: path.join(home, 'data'), GYMBUS_CACHE: path.join(home, 'cache') };
    return execa(program, rest, { env: { ...env, NATS_URL: '', ...own }, reject: false, stdin: 'ignore', all: true });
  };

  it.each([[['demo']], [['up']]])('is told at once that root is needed: %j', async (args) => {
    const { exitCode, stdout, stderr } = await asNobody(gymbusProgram, ...args);
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toBe(
      `gymbus: root is needed to build the guest image, which is not in ${home}/cache yet; run this as root (sudo -s, with node and go on its PATH)`,
    );
  });

  it('is told so by image build, without a stack', async () => {
    const { exitCode, stderr } = await asNobody(gymbusProgram, 'image', 'build');
    expect(exitCode, stderr).toBe(1);
    expect(stderr).toMatch(/^gymbus: building the image debian-desktop needs root .*$/);
  });

  it('is told so by npm test, without a stack', async () => {
    const { exitCode, all } = await asNobody(testProgram, 'test/unit/config.test.ts');
    expect(exitCode, all).toBe(1);
    expect(all.split('\n').at(-1)).toMatch(/^gymbus: root is needed to build the guest image, .*$/);
  });

  it('is told who has to make a checkout ready that belongs to another', async () => {
    const checkout = path.join(folder, 'checkout');
    for (const file of ['package.json', 'tsconfig.json', 'infra/bin/gymbus.mjs', 'infra/bin/prepare.mjs']) {
      await cp(path.resolve(import.meta.dirname, '../..', file), path.join(checkout, file));
    }
    await chmod(checkout, 0o555);
    const { exitCode, stderr } = await asNobody(path.join(checkout, 'infra/bin/gymbus.mjs'), '--version');
    expect(exitCode).toBe(1);
    expect(stderr.split('\n').at(-1)).toBe(
      `gymbus: ${checkout}/dist is out of date and cannot be written to (EACCES); run npx gymbus --version in ${checkout} once, as its owner.`,
    );
  });
});

it('examines the host without a server, says what each finding means, and leaves no mount behind', async () => {
  const { exitCode, stdout, stderr } = await gymbus('doctor', '--json');
  const findings = JSON.parse(stdout) as { what: string; verdict: string; found: string; remedy?: string }[];
  const verdicts = Object.fromEntries(findings.map(({ what, verdict }) => [what, verdict]));
  expect(verdicts).toMatchObject({
    node: 'fine',
    packages: 'fine',
    qemu: 'fine',
    'local stack': 'fine',
    reflink: 'fine',
    nats: 'note',
    s3: 'note',
  });
  expect(['fine', 'note']).toContain(verdicts.accelerator);
  const isolation = findings.find(({ what }) => what === 'isolation');
  expect(isolation?.found).toMatch(/^QEMU (runs|will run) as .*; limits by (cgroups version [12]|rlimits)/);
  expect(['fine', 'note']).toContain(isolation?.verdict);
  const stack = findings.find(({ what }) => what === 'local stack')?.found;
  expect(stack).toMatch(/^nats-server \d+\.\d+\.\d+ at \/.*, versitygw \d+\.\d+\.\d+ at \/.*$/);
  for (const { verdict, remedy } of findings) if (verdict !== 'fine') expect(remedy).toMatch(/\w/);
  expect(exitCode, stderr).toBe(0);
  expect(await readFile('/proc/mounts', 'utf8')).not.toContain(folder);
}, 120_000);

it('exits with 1 where no runner could work, and says what is in its way', async () => {
  await using server = await startImpostor('2.9.10');
  const { exitCode, stdout, stderr } = await runGymbus(['doctor'], { ...env, NATS_URL: server.url });
  expect(exitCode).toBe(1);
  expect(stdout).toMatch(/^FAIL {2}nats +.*2\.9\.10.*2\.12/m);
  expect(stdout).toMatch(/^ok {4}node /m);
  expect(stderr).toBe('gymbus: a runner cannot work here yet: nats');
}, 120_000);

it('shows no password of a server that it reaches, however the address is written', async () => {
  await using server = await startNats({ users: [{ user: 'me', password: 'hush' }] });
  for (const scheme of ['', 'nats://']) {
    const NATS_URL = `${scheme}me:hush@127.0.0.1:${server.port}`;
    const { stdout, stderr } = await runGymbus(['doctor', '--json'], { ...env, NATS_URL });
    const findings = JSON.parse(stdout) as { what: string; verdict: string }[];
    expect(findings).toContainEqual(expect.objectContaining({ what: 'nats', verdict: 'fine' }));
    expect(stdout + stderr).not.toContain('hush');
  }
}, 120_000);
