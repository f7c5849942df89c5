import { z } from 'zod';
import { SetupError, type SetupRecord } from '../contract.ts';
import { type Guest, GuestFileError } from '../guest.ts';
import { resolveGuestPath } from '../guest-path.ts';

/** The parameters of a step that writes files. */
export const filesOf = <T extends z.ZodType>(file: T) => z.strictObject({ files: z.array(file).min(1).max(256) });

/** For `refine`: a file comes from one of two places. Asked only where its fields are sound. */
export function oneSource<A extends string, B extends string>(a: A, b: B) {
  return [
    (file: { [name in A | B]?: unknown }) => (file[a] === undefined) !== (file[b] === undefined),
    { message: `needs one of ${a} and ${b}`, when: ({ issues }: z.core.ParsePayload) => issues.length === 0 },
  ] as const;
}

/**
 * Writes files into the guest, one after the other.
 * @param read gives a file's bytes
 * @throws SetupError with those that were written, when the guest refuses one; whatever `read` throws
 */
export async function writeFiles<File extends { path: string }>(
  files: readonly File[],
  read: (file: File) => Promise<Uint8Array>,
  guest: Guest,
  signal: AbortSignal,
): Promise<SetupRecord> {
  const written: NonNullable<SetupRecord['files']> = [];
  for (const file of files) {
    const data = await read(file);
    const path = resolveGuestPath(file.path, guest.account);
    try {
      await guest.writeFile(path, data, {}, signal);
    } catch (error) {
      if (!(error instanceof GuestFileError)) throw error;
      throw new SetupError(`the guest cannot write ${path}: ${error.message} (${error.code})`, {
        cause: error,
        record: { files: written },
      });
    }
    written.push({ path, bytes: data.length });
  }
  return { files: written };
}
