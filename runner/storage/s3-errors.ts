import { ObjectDamaged, ObjectMissing, StorageAway, StorageRefused } from './errors.ts';

/** Which request failed, for messages. */
export interface S3Request {
  operation: string;
  bucket: string;
  /** Empty for requests about the bucket itself. */
  key: string;
  endpoint: string;
}

interface SdkError extends Error {
  code?: string;
  $metadata?: { httpStatusCode?: number };
  $response?: { statusCode?: number };
}

/** Answers that mean "later", whatever their status: throttling, and uploads that broke off on the way. */
const LATER = new Set([
  'SlowDown',
  'ThrottlingException',
  'Throttling',
  'TooManyRequestsException',
  'RequestLimitExceeded',
  'RequestTimeout',
  'IncompleteBody',
  'InternalError',
  'ServiceUnavailable',
  'OperationAborted',
  'XMinioServerNotInitialized',
]);
/** The bytes that arrived were not the bytes that were hashed. */
const DAMAGED = new Set([
  'BadDigest',
  'InvalidDigest',
  'XAmzContentSHA256Mismatch',
  'XAmzContentChecksumMismatch',
  'ChecksumMismatch',
]);
/** What the SDK says of an answer whose bytes are not those of the checksum that they were put with. */
const CHANGED_SINCE = /^Checksum mismatch:/;

const REMEDIES: [codes: RegExp, remedy: string][] = [
  [
    /^(InvalidAccessKeyId|XAdminUserNotFound|SignatureDoesNotMatch|InvalidToken|403|Forbidden|UnknownError|Unknown)$/,
    'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY',
  ],
  [/^(ExpiredToken|TokenRefreshRequired|ExpiredTokenException)$/, 'the credentials have expired: renew them'],
  [
    /^(CredentialsProviderError|NoCredentials)$/,
    'no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile',
  ],
  [
    /^(AccessDenied|AllAccessDisabled|AccountProblem)$/,
    'give the account s3:PutObject, s3:GetObject and s3:ListBucket on it',
  ],
  [/^NoSuchBucket$/, 'create it, or name another with GYMBUS_BUCKET'],
  [/^InvalidBucketName$/, 'name a legal one with GYMBUS_BUCKET: 3 to 63 of a-z, 0-9, dot, hyphen'],
  [
    /^(PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraintException)$/,
    'set AWS_REGION to its region',
  ],
  [/^RequestTimeTooSkewed$/, "this machine's clock and S3's differ: set it (NTP)"],
  [
    /^(CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/,
    "its certificate is not valid now: renew it, or set this machine's clock if that is wrong (NTP)",
  ],
  [
    /^ERR_TLS_CERT_ALTNAME_INVALID$/,
    'its certificate is for another name: give AWS_ENDPOINT_URL a name that is in it, or S3 a certificate with this one',
  ],
  [
    /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT.*|CERT_.*)$/,
    'its certificate is not trusted here: set AWS_CA_BUNDLE to the file of its authority',
  ],
  [/^NotS3$/, 'it speaks TLS, or is no S3: check https:// and the port in AWS_ENDPOINT_URL'],
  [/^(EPROTO|ERR_SSL_.*)$/, 'it does not speak TLS: check http:// or https:// in AWS_ENDPOINT_URL'],
  [
    /^(EntityTooLarge|KeyTooLongError|InvalidArgument|InvalidRequest|NotImplemented|MethodNotAllowed)$/,
    'this S3 server does not take the request',
  ],
];

/**
 * Turns whatever the SDK threw into one of four errors with a message for people.
 * @returns `StorageAway` (try again), `StorageRefused`, `ObjectMissing` or `ObjectDamaged`; the SDK's error is its cause
 */
export function explainS3Error(
  error: unknown,
  request: S3Request,
): StorageAway | StorageRefused | ObjectMissing | ObjectDamaged {
  const e = error as SdkError;
  const where = request.key ? `s3://${request.bucket}/${request.key}` : `bucket ${request.bucket}`;
  const what = `${request.operation} ${where} at ${request.endpoint}`;
  const status = e.$metadata?.httpStatusCode ?? e.$response?.statusCode;
  const code = (status === undefined ? (e.code ?? e.name) : e.name) || 'Unknown';
  const said = e.message && e.message !== code ? `: ${e.message}` : '';
  const options = { cause: withoutResponse(e) };

  if (DAMAGED.has(code) || CHANGED_SINCE.test(e.message)) {
    return new ObjectDamaged(`${what}: the bytes changed between disk and S3 (${code}${said})`, options);
  }
  if (LATER.has(code) || status === 429 || status === 408 || (status !== undefined && status >= 500)) {
    return new StorageAway(`${what}: not now (${status ?? ''} ${code}${said})`.replace('( ', '('), options);
  }
  // Not every 404: some servers answer so to a key id they do not know.
  if (code === 'NoSuchKey' || (code === 'NotFound' && request.key)) {
    return new ObjectMissing(request.key, `${what}: there is no such object`, options);
  }
  // An answer that is no XML has no code; Go's servers give this one to plain http where they speak TLS.
  const named = status === 400 && code === 'Error' ? 'NotS3' : code;
  const refusal = status === 404 && code === 'NotFound' ? 'NoSuchBucket' : named;
  const remedy = REMEDIES.find(([codes]) => codes.test(refusal))?.[1];
  if (remedy || (status !== undefined && status >= 300 && status < 500)) {
    return new StorageRefused(
      refusal,
      `${what} refused (${status ?? ''} ${refusal}${said})${remedy ? `; ${remedy}` : ''}`.replace('( ', '('),
      options,
    );
  }
  // No status: the connection failed. A status below 300 with an error: the answer broke off or was no S3's.
  return new StorageAway(`${what}: no answer (${code}${said})`, options);
}

/** The SDK hangs the whole exchange on its errors: sockets that would be kept alive, and a signed header that is no log's. */
function withoutResponse(error: SdkError): Error {
  if (!error.$response) return error;
  const { name, message, stack, $metadata } = error;
  return Object.assign(new Error(message), { name, stack, status: $metadata?.httpStatusCode });
}
