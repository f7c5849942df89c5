import { describe, expect, it } from 'vitest';
import { CONFIGURATION, ConfigError, readConfig } from '../../runner/host/config.ts';
import { ZODS } from '../support/refusals.ts';

describe('configuration', () => {
  it('needs nothing', () => {
    expect(readConfig({})).toMatchObject({
      nats: { servers: ['nats://127.0.0.1:4222'] },
      s3: { bucket: 'gymbus', pathStyle: false },
    });
  });

  it('takes an empty variable as unset and ignores others', () => {
    expect(readConfig({ GYMBUS_ACTING: '', PATH: '/bin' }).acting).toBeUndefined();
  });

  it('uses path style with an endpoint, unless told', () => {
    expect(readConfig({ AWS_ENDPOINT_URL: 'http://127.0.0.1:7070' }).s3.pathStyle).toBe(true);
    expect(readConfig({ AWS_ENDPOINT_URL: 'http://127.0.0.1:7070', GYMBUS_S3_PATH_STYLE: 'no' }).s3.pathStyle).toBe(
      false,
    );
  });

  it('names a setting that does not exist: it would have no effect, unnoticed', () => {
    expect(() => readConfig({ GYMBUS_ACTNG: '4' })).toThrow('there is no setting GYMBUS_ACTNG');
    expect(() => readConfig({ GYMBUS_TEST_DATA: '/tmp', NATS_ACTNG: '4' })).not.toThrow();
  });

  it('takes keys of S3 only as a pair', () => {
    expect(() => readConfig({ AWS_ACCESS_KEY_ID: 'a' })).toThrow('go together');
    expect(() => readConfig({ AWS_SECRET_ACCESS_KEY: 'b' })).toThrow(ConfigError);
  });

  it('says what a contradiction would lead to', () => {
    expect(() => readConfig({ GYMBUS_SETTLE_MS: '500', GYMBUS_SETTLE_MAX_MS: '100' })).toThrow(/no picture would ever/);
  });
});

/** Any text is one: nothing here can be refused before it is used. */
const TEXTS = [
  ...['NATS_CREDS', 'NATS_USER', 'NATS_PASSWORD', 'NATS_CA', 'AWS_CA_BUNDLE'],
  ...['GYMBUS_DATA', 'GYMBUS_CACHE'],
];
const WRONG = [
  'soon',
  '-1',
  '1.5',
  '1e400',
  '0',
  '9'.repeat(200),
  'a b',
  'A_b',
  ',',
  'a,,b@',
  'http://x:y',
  '🙂',
  '\u0000',
  ' ',
];

function refusalOf(variables: Record<string, string>): string {
  try {
    readConfig(variables);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  return '';
}

describe('a wrong variable is named, with what is allowed and what was received', () => {
  it.each([
    ['GYMBUS_ACTING', '0', 'must be at least 1 (got "0")'],
    ['GYMBUS_DRAIN_S', 'soon', 'must be a number (got "soon")'],
    ['GYMBUS_DRAIN_S', '2147484', 'must be at most 86400 (got "2147484")'],
    ['GYMBUS_HEALTH_PORT', '1.5', 'must be a whole number (got "1.5")'],
    ['GYMBUS_HEALTH_PORT', '70000', 'must be at most 65535 (got "70000")'],
    ['GYMBUS_SPOOL_GIB', '0', 'must be more than 0 (got "0")'],
    ['GYMBUS_ACCEL', 'xen', 'must be one of auto, kvm, tcg (got "xen")'],
    ['GYMBUS_RUNNER_ID', 'host.a', /^must be 1 to 64 characters of .* \(got "host\.a"\)$/],
    ['GYMBUS_PREFIX', 'x'.repeat(100), /^must be 1 to 64 characters of .* \(got "x{76}\.\.\.\)$/],
    ['AWS_REGION', 'us east', 'must be a region like us-east-1 (got "us east")'],
    ['AWS_ACCESS_KEY_ID', 'a\nb', /^must be a key as it was given, .* \(got "a\\nb"\)$/],
    ['AWS_ENDPOINT_URL', 'localhost:7070', 'must be a URL like http://127.0.0.1:9000 (got "localhost:7070")'],
    ['GYMBUS_IMAGES', ',', 'must name at least one image (got ",")'],
    ['GYMBUS_IMAGES', 'a b,c', 'must be NAME or NAME@DIGEST, comma separated; "a b" is neither (got "a b,c")'],
    ['GYMBUS_IMAGES', 'a@b@c', /^must be NAME or NAME@DIGEST/],
    ['GYMBUS_IMAGES', 'a@', /^must be NAME or NAME@DIGEST/],
    ['GYMBUS_IMAGES', 'a,a@3d', 'names a twice: a job names an image by its name alone (got "a,a@3d")'],
    ...['Ab', 'a_b', 'ab', 'a'.repeat(64), '-ab', 'ab.', 'a..b', '192.168.0.1', 's3://ab', 'a/b'].map(
      (name): [string, string, RegExp] => [
        'GYMBUS_BUCKET',
        name,
        /^must be 3 to 63 characters of a-z 0-9 \. - .* \(got "/,
      ],
    ),
  ])('%s=%s', (name, value, said) => {
    const [, line = ''] = refusalOf({ [name]: value }).split('\n');
    expect(line.trim().startsWith(`${name}: `), line).toBe(true);
    const problem = line.trim().slice(name.length + 2);
    if (typeof said === 'string') expect(problem).toBe(said);
    else expect(problem).toMatch(said);
  });

  it.each(['gymbus', 'a.b-c.9', '0'.repeat(63)])('GYMBUS_BUCKET=%s is none', (name) =>
    expect(readConfig({ GYMBUS_BUCKET: name }).s3.bucket).toBe(name),
  );

  it('GYMBUS_IMAGES names several, with blanks around them', () =>
    expect(readConfig({ GYMBUS_IMAGES: ' a , b@3d2ee79e,' }).images).toEqual(['a', 'b@3d2ee79e']));

  it.each([
    ['http://x:4222', 'begins with http://'],
    [',', 'must name at least one server'],
    ['nats://', 'names no host'],
    ['nats://me:secret@host:port', '"nats://(secret)@host:port" is none'],
    ['me:secret@host:port', '"(secret)@host:port" is none'],
    ['nats://me:sec/ret@host', '"nats://(secret)@host" is none'],
    ['nats://me:sec%ret@host', 'has a % in its credentials'],
  ])('NATS_URL=%s, and no password is shown', (url, said) => {
    const message = refusalOf({ NATS_URL: url });
    expect(message).toMatch(/^NATS_URL: /);
    expect(message).toContain(said);
    expect(message).not.toMatch(/secret@|sec.?ret@/);
  });

  it.each(['AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN'])('%s is not shown', (name) => {
    const keys = { AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' };
    expect(refusalOf({ ...keys, [name]: 'hush\n' })).toBe(
      `${name} must be as it was given, without blanks and line ends`,
    );
  });

  it('folders are absolute: messages name them to shells that are elsewhere', () => {
    const { dataDir, cacheDir } = readConfig({ GYMBUS_DATA: 'a/b', GYMBUS_CACHE: '/c/../d' });
    expect({ dataDir, cacheDir }).toEqual({ dataDir: `${process.cwd()}/a/b`, cacheDir: '/d' });
  });

  it('in plain words, whatever any variable holds', () => {
    for (const name of Object.keys(CONFIGURATION)) {
      const refusals = WRONG.map((value) => refusalOf({ ...NEEDED[name], [name]: value })).filter(Boolean);
      if (!TEXTS.includes(name) && !(name in NEEDED)) expect(refusals.length, name).toBeGreaterThan(2);
      for (const refusal of refusals) {
        expect(refusal).toContain(name);
        expect(refusal).not.toMatch(ZODS);
        expect(refusal.length).toBeLessThan(500);
      }
    }
  });
});

/** Keys of S3 go in pairs. */
const NEEDED: Record<string, Record<string, string>> = {
  AWS_ACCESS_KEY_ID: { AWS_SECRET_ACCESS_KEY: 'b' },
  AWS_SECRET_ACCESS_KEY: { AWS_ACCESS_KEY_ID: 'a' },
};
