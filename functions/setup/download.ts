import { z } from 'zod';
import { type JobContext, SetupError, type SetupFunction } from '../contract.ts';
import { download as fetchUrl } from '../download/http.ts';
import { checkedInputKey, inputKey, keyProblems, parseS3Url } from '../download/input-key.ts';
import { GuestPath } from '../guest-path.ts';
import { filesOf, oneSource, writeFiles } from './files.ts';

const Url = z
  .string()
  .max(8_192)
  .refine((url) => parseS3Url(url) !== null || (/^https?:\/\//i.test(url) && URL.canParse(url)), {
    message: 'must be an http://, https:// or s3://<bucket>/inputs/<batch>/ address',
  });

const File = z
  .strictObject({ url: Url.optional(), s3_key: z.string().min(1).optional(), path: GuestPath })
  .refine(...oneSource('url', 's3_key'));
type File = z.infer<typeof File>;

const Parameters = filesOf(File);
type Parameters = z.infer<typeof Parameters>;

export const download: SetupFunction<Parameters> = {
  type: 'download',
  summary: "Fetch files from the web or from the batch's inputs into the guest",
  parameters: Parameters,
  check: ({ files }, job) =>
    files.flatMap((file, index) =>
      keyProblems(
        `files.${index}.${file.url === undefined ? 's3_key' : 'url'}`,
        () => objectOf(file, job.batch_id)?.key ?? '',
      ),
    ),
  run: ({ files }, guest, context, signal) =>
    writeFiles(files, (file) => fetchFile(file, context, signal), guest, signal),
};

/** The object a file is taken from, null for one of the web. @throws InputKeyError */
function objectOf({ url, s3_key }: File, batch: string): { bucket?: string; key: string } | null {
  if (url === undefined) return { key: inputKey(s3_key ?? '', batch) };
  const named = parseS3Url(url);
  return named && { bucket: named.bucket, key: checkedInputKey(named.key, batch) };
}

async function fetchFile(file: File, context: JobContext, signal: AbortSignal): Promise<Buffer> {
  const object = objectOf(file, context.job.batch_id);
  if (object === null) return fetchUrl(file.url ?? '', context.downloads, signal);
  if (object.bucket !== undefined && object.bucket !== context.bucket) {
    throw new SetupError(`${file.url} is not in bucket ${context.bucket}, the only one that can be named`);
  }
  return context.readInput(object.key, { maxBytes: context.downloads.maxBytes }, signal);
}
