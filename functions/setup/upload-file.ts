import { z } from 'zod';
import { SetupError, type SetupFunction, type SetupRecord } from '../contract.ts';
import { inputKey, keyProblems } from '../download/input-key.ts';
import { GuestFileError } from '../guest.ts';
import { GuestPath, resolveGuestPath } from '../guest-path.ts';

const File = z
  .strictObject({
    path: GuestPath,
    content_base64: z.base64().optional(),
    s3_key: z.string().min(1).optional().describe('Under inputs/<batch>/, whole or relative'),
    local_path: z.never('a job cannot name files of a host: give content_base64 or s3_key').optional(),
  })
  .refine((file) => (file.content_base64 === undefined) !== (file.s3_key === undefined), {
    message: 'needs one of content_base64 and s3_key',
    when: ({ issues }) => issues.length === 0,
  });

const Parameters = z.strictObject({ files: z.array(File).min(1).max(256) });
type Parameters = z.infer<typeof Parameters>;

export const uploadFile: SetupFunction<Parameters> = {
  type: 'upload_file',
  summary: 'Write files into the guest, from the job itself or from its inputs',
  parameters: Parameters,
  check: ({ files }, job) =>
    files.flatMap(({ s3_key }, index) =>
      s3_key === undefined ? [] : keyProblems(`files.${index}.s3_key`, () => inputKey(s3_key, job.batch_id)),
    ),
  async run({ files }, guest, context, signal) {
    const written: NonNullable<SetupRecord['files']> = [];
    for (const file of files) {
      const data =
        file.s3_key === undefined
          ? Buffer.from(file.content_base64 ?? '', 'base64')
          : await context.readInput(
              inputKey(file.s3_key, context.job.batch_id),
              { maxBytes: context.downloads.maxBytes },
              signal,
            );
      const path = resolveGuestPath(file.path, guest.account);
      await writeGuestFile(path, data, written, () => guest.writeFile(path, data, {}, signal));
    }
    return { files: written };
  },
};

/** Adds the file to `written` once it is there; the guest's refusal becomes a SetupError that says which were. */
export async function writeGuestFile(
  path: string,
  data: Uint8Array,
  written: NonNullable<SetupRecord['files']>,
  write: () => Promise<void>,
): Promise<void> {
  try {
    await write();
  } catch (error) {
    if (!(error instanceof GuestFileError)) throw error;
    throw new SetupError(`the guest cannot write ${path}: ${error.message} (${error.code})`, {
      cause: error,
      record: { files: written },
    });
  }
  written.push({ path, bytes: data.length });
}
