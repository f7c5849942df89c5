import { describe, expect, it } from 'vitest';
import { asStorageFull, StorageFull } from '../../runner/storage/errors.ts';
import { explainS3Error } from '../../runner/storage/s3-errors.ts';

const request = { operation: 'PUT', bucket: 'gymbus', key: 'a/b.png', endpoint: 'http://s3:9000' };
/** As the SDK throws what a server answered. */
const answered = (status: number, name: string, message = 'the message') =>
  Object.assign(new Error(message), { name, $metadata: { httpStatusCode: status }, $response: { headers: {} } });
/** As the SDK throws what the system said. */
const failed = (code: string) => Object.assign(new Error(`connect ${code}`), { code });

describe('an error of S3', () => {
  it.each([
    answered(500, 'InternalError'),
    answered(502, 'Unknown'),
    answered(503, 'SlowDown'),
    answered(503, 'ServiceUnavailable'),
    answered(429, 'TooManyRequests'),
    answered(400, 'RequestTimeout'),
    answered(400, 'IncompleteBody'),
    answered(409, 'OperationAborted'),
    answered(200, 'SyntaxError'),
    failed('ECONNREFUSED'),
    failed('ECONNRESET'),
    failed('EPIPE'),
    failed('ENOTFOUND'),
    failed('EAI_AGAIN'),
    failed('EHOSTUNREACH'),
    Object.assign(new Error('timed out'), { name: 'TimeoutError' }),
    new Error('socket hang up'),
  ])('is worth another try: $name $code $message', (error) => {
    const explained = explainS3Error(error, request);
    expect(explained.name).toBe('StorageAway');
    expect(explained.message).toContain('PUT s3://gymbus/a/b.png at http://s3:9000');
    expect((explained.cause as Error).message).toBe(error.message);
  });

  it.each<[Error, RegExp]>([
    [answered(403, 'AccessDenied'), /s3:PutObject/],
    [answered(403, 'InvalidAccessKeyId'), /AWS_ACCESS_KEY_ID/],
    [answered(403, 'SignatureDoesNotMatch'), /AWS_SECRET_ACCESS_KEY/],
    [answered(404, 'XAdminUserNotFound'), /AWS_ACCESS_KEY_ID/],
    [answered(403, 'RequestTimeTooSkewed'), /clock/],
    [answered(400, 'ExpiredToken'), /renew/],
    [answered(404, 'NoSuchBucket'), /GYMBUS_BUCKET/],
    [answered(400, 'InvalidBucketName'), /GYMBUS_BUCKET/],
    [answered(301, 'PermanentRedirect'), /AWS_REGION/],
    [answered(400, 'AuthorizationHeaderMalformed'), /AWS_REGION/],
    [answered(405, 'MethodNotAllowed'), /does not take the request/],
    [answered(418, 'Teapot'), /refused \(418 Teapot: the message\)/],
    [failed('SELF_SIGNED_CERT_IN_CHAIN'), /AWS_CA_BUNDLE/],
    [failed('CERT_UNTRUSTED'), /AWS_CA_BUNDLE/],
    [failed('CERT_HAS_EXPIRED'), /not valid now: renew it/],
    [failed('ERR_TLS_CERT_ALTNAME_INVALID'), /for another name: give AWS_ENDPOINT_URL a name/],
    [answered(400, 'Error', 'XML parse error'), /it speaks TLS, or is no S3: check https:\/\//],
    [failed('EPROTO'), /AWS_ENDPOINT_URL/],
    [Object.assign(new Error('none'), { name: 'CredentialsProviderError' }), /set AWS_ACCESS_KEY_ID/],
  ])('is a refusal with a remedy: %s', (error, remedy) => {
    const explained = explainS3Error(error, request);
    expect(explained.name).toBe('StorageRefused');
    expect(explained.message).toMatch(remedy);
  });

  it('about a key that is not there is no refusal', () => {
    expect(explainS3Error(answered(404, 'NoSuchKey'), request).name).toBe('ObjectMissing');
    expect(explainS3Error(answered(404, 'NotFound'), request).name).toBe('ObjectMissing');
  });

  it('about a bucket that is not there is one, also where the answer has no body', () => {
    const explained = explainS3Error(answered(404, 'NotFound'), { ...request, key: '' });
    expect(explained).toMatchObject({ name: 'StorageRefused', code: 'NoSuchBucket' });
  });

  it.each(['BadDigest', 'XAmzContentSHA256Mismatch', 'InvalidDigest'])(
    'about damaged bytes is told apart: %s',
    (code) => {
      expect(explainS3Error(answered(400, code), request).name).toBe('ObjectDamaged');
    },
  );

  it('about an answer that is not what was put is one of damaged bytes', () => {
    const changed = new Error(
      'Checksum mismatch: expected "a" but received "b" in response header "x-amz-checksum-sha256".',
    );
    expect(explainS3Error(changed, request).name).toBe('ObjectDamaged');
  });

  it('does not keep the exchange, with its signed headers, alive', () => {
    expect(explainS3Error(answered(403, 'AccessDenied'), request).cause).not.toHaveProperty('$response');
  });
});

describe('a full disk', () => {
  it('is named for what it is, with the remedy; other errors pass', () => {
    expect(asStorageFull(failed('ENOSPC'), '/data/spool/x')).toBeInstanceOf(StorageFull);
    expect(asStorageFull(failed('EDQUOT'), '/x')).toBeInstanceOf(StorageFull);
    expect((asStorageFull(failed('ENOSPC'), '/data/spool/x') as Error).message).toMatch(
      /\/data\/spool\/x.*GYMBUS_DATA/,
    );
    const other = failed('EACCES');
    expect(asStorageFull(other, '/x')).toBe(other);
  });
});
