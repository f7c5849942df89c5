import { z } from 'zod';

/** Image, batch and job ids are legal NATS subject tokens and object-key segments as they stand. */
export const ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/;
/** `<n>-<8 or more random characters>`: the attempt's ordinal, and what keeps two holders of the same ordinal apart. */
export const ATTEMPT_ID_PATTERN = /^[1-9][0-9]{0,5}-[a-z0-9]{8,32}$/;

const ID_RULE = 'must be 1 to 64 characters of A-Z a-z 0-9 _ - (no dots, slashes or spaces)';
const ID_MEANING = 'Identifier; a legal NATS subject token and object-key segment';

export const Id = z.string().regex(ID_PATTERN, ID_RULE).describe(ID_MEANING);
export type Id = z.infer<typeof Id>;

/** An image as jobs name it: which digest of it is played is the runners' affair. */
export const ImageName = z
  .string()
  .regex(ID_PATTERN, {
    error: ({ input }) =>
      String(input).includes('@')
        ? 'must be the name of an image alone, without @digest: runners pin digests with GYMBUS_IMAGES'
        : ID_RULE,
  })
  .describe(ID_MEANING);

export const AttemptId = z.string().regex(ATTEMPT_ID_PATTERN, 'must be <n>-<8 or more of a-z 0-9>');
export type AttemptId = z.infer<typeof AttemptId>;

export const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 hexadecimal digits');
/** RFC 3339 in UTC with milliseconds, as `Date.prototype.toISOString` writes it. */
export const Timestamp = z.iso.datetime();
/** Whole milliseconds by phase name; phases that did not happen are absent. */
export const TimingsMs = z.record(z.string(), z.number().nonnegative());
export type TimingsMs = z.infer<typeof TimingsMs>;
