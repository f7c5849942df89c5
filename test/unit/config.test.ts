import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../../runner/host/config.ts';

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

  it.each([
    ['GYMBUS_ACTING', '0'],
    ['GYMBUS_DRAIN_S', 'soon'],
    ['GYMBUS_RUNNER_ID', 'host.a'],
    ['GYMBUS_ACCEL', 'xen'],
    ['GYMBUS_HEALTH_PORT', '70000'],
  ])('names %s and its value %j', (name, value) => {
    expect(() => readConfig({ [name]: value })).toThrow(new RegExp(`${name}=${value}`));
    expect(() => readConfig({ [name]: value })).toThrow(ConfigError);
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
