import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const script = path.resolve(import.meta.dirname, '../../infra/s3/minio-setup.sh');
const secrets = {
  ...{ GYMBUS_RUNNER_SECRET: 'r', GYMBUS_PUBLISHER_SECRET: 'p', GYMBUS_READER_SECRET: 'q', GYMBUS_IMAGES_SECRET: 'i' },
};
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'gymbus-minio-'));
  // MinIO's command line, as far as the script calls it: it says how, keeps the policies, and what goes to standard input.
  const mc = `#!/bin/sh
echo "mc $*"
case "$1 $2 $3" in
  "admin policy create") cp "$6" "${folder}/$5.json" ;;
  "admin policy attach") test -z "$NOT_ATTACHED" && echo "$5" >>"${folder}/$7.attached" ;;
  "admin user add") cat >"${folder}/$5.secret" ;;
  "admin user info") echo "PolicyName: $(paste -sd, "${folder}/$5.attached" 2>/dev/null)" ;;
esac
`;
  await writeFile(path.join(folder, 'mc'), mc);
  await chmod(path.join(folder, 'mc'), 0o755);
});
afterAll(() => rm(folder, { recursive: true }));

const run = (env: Record<string, string>) =>
  execa('sh', [script, 'lab'], { env: { PATH: `${folder}:${process.env.PATH}`, ...env }, reject: false });

describe.each(['gymbus', 'lab-episodes'])('for the bucket %s', (bucket) => {
  it('makes it, and an account for each role', async () => {
    const { stdout, stderr, exitCode } = await run({ ...secrets, GYMBUS_BUCKET: bucket });
    expect(exitCode, stderr).toBe(0);
    expect(stdout).toContain(`mc mb --ignore-existing lab/${bucket}\n`);
    for (const [role, secret] of Object.entries({ runner: 'r', publisher: 'p', reader: 'q', images: 'i' })) {
      expect(stdout).toContain(`mc admin user add lab gymbus-${role}\n`);
      expect(await readFile(path.join(folder, `gymbus-${role}.secret`), 'utf8')).toBe(`${secret}\n`);
    }
  });

  it.each(['runner', 'publisher', 'reader', 'images'])('gives the %s rights in it and nowhere else', async (role) => {
    const policy = JSON.parse(await readFile(path.join(folder, `${bucket}-${role}.json`), 'utf8'));
    const resources = (policy.Statement as { Resource: string[] }[]).flatMap(({ Resource }) => Resource);
    expect(resources.length).toBeGreaterThan(1);
    for (const resource of resources) expect(resource).toMatch(new RegExp(`^arn:aws:s3:::${bucket}(/|$)`));
  });
});

it('leaves an account its rights in a bucket that was prepared before', async () => {
  for (const bucket of ['gymbus', 'lab-episodes']) await run({ ...secrets, GYMBUS_BUCKET: bucket });
  const attached = await readFile(path.join(folder, 'gymbus-runner.attached'), 'utf8');
  expect(new Set(attached.trim().split('\n'))).toEqual(new Set(['gymbus-runner', 'lab-episodes-runner']));
});

it('fails when a policy is not attached', async () => {
  const { exitCode, stderr } = await run({ ...secrets, GYMBUS_BUCKET: 'elsewhere', NOT_ATTACHED: 'yes' });
  expect({ exitCode, stderr }).toEqual({
    exitCode: 1,
    stderr: 'the policy elsewhere-runner is not attached to the account gymbus-runner',
  });
});

it('asks for a secret that is not given, by its name, before it does anything', async () => {
  const { GYMBUS_READER_SECRET: _, ...some } = secrets;
  const { exitCode, stdout, stderr } = await run(some);
  expect(exitCode).not.toBe(0);
  expect(stdout).toBe('');
  expect(stderr).toContain('GYMBUS_READER_SECRET: set it: the secret key of the account gymbus-reader');
});
