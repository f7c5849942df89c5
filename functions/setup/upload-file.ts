import { z } from 'zod';
import type { JobContext, SetupFunction } from '../contract.ts';
import { inputKey, keyProblems } from '../download/input-key.ts';
import { GuestPath } from '../guest-path.ts';
import { filesOf, oneSource, writeFiles } from './files.ts';

const File = z
  .strictObject({
    path: GuestPath,
    content_base64: z.base64().optional(),
    s3_key: z.string().min(1).optional().describe('Under inputs/<batch>/, whole or relative'),
    local_path: z.never('a job cannot name files of a host: give content_base64 or s3_key').optional(),
  })
  .refine(...oneSource('content_base64', 's3_key'));
type File = z.infer<typeof File>;

const Parameters = filesOf(File);
type Parameters = z.infer<typeof Parameters>;

export const uploadFile: SetupFunction<Parameters> = {
  type: 'upload_file',
  summary: 'Write files into the guest, from the job itself or from its inputs',
  parameters: Parameters,
  check: ({ files }, job) =>
    files.flatMap(({ s3_key }, index) =>
      s3_key === undefined ? [] : keyProblems(`files.${index}.s3_key`, () => inputKey(s3_key, job.batch_id)),
    ),
  run: ({ files }, guest, context, signal) =>
    writeFiles(files, (file) => contentOf(file, context, signal), guest, signal),
};

async function contentOf({ s3_key, content_base64 }: File, context: JobContext, signal: AbortSignal): Promise<Buffer> {
  if (s3_key === undefined) return Buffer.from(content_base64 ?? '', 'base64');
  const limits = { maxBytes: context.downloads.maxBytes };
  return context.readInput(inputKey(s3_key, context.job.batch_id), limits, signal);
}
