import { z } from 'zod';
import { Flag } from '../../command/command-line.ts';
import { EvaluatorError, type GetterFunction } from '../../contract.ts';
import { type Guest, GuestFileError } from '../../guest.ts';
import { GuestPath, resolveGuestPath } from '../../guest-path.ts';

/** Held in memory while it is scored; OSWorld's largest files are a few MiB. */
const MAX_BYTES = 64 * 2 ** 20;
/** The guest's answers that mean: there is no such file for you to read. */
const ABSENT = new Set(['ENOENT', 'ENOTDIR', 'EISDIR', 'ELOOP', 'EACCES', 'ENAMETOOLONG']);

const oneOrMany = <T extends z.ZodType>(item: T) => z.union([item, z.array(item).min(1)]);
const Parameters = z
  .strictObject({
    path: oneOrMany(GuestPath),
    dest: oneOrMany(z.string()).optional().describe('Cache-file name; kept for the record'),
    multi: Flag.default(false),
    gives: z.array(z.number().int().nonnegative()).min(1).default([0]).describe('Which of several paths are compared'),
    time_suffix: Flag.optional(),
    time_format: z.string().optional(),
  })
  .superRefine(({ path, multi, gives }, refinement) => {
    const issue = (field: string, message: string): void =>
      refinement.addIssue({ code: 'custom', path: [field], message });
    if (Array.isArray(path) !== multi)
      issue('path', multi ? 'must be a list with "multi": true' : 'needs "multi": true');
    const beyond = gives.find((index) => index >= (Array.isArray(path) ? path.length : 1));
    if (beyond !== undefined) issue('gives', `names path ${beyond}, counted from 0, which is not there`);
  });

/** The file's bytes, or null where the guest says there is none; a list where `gives` names several. */
export const vmFile: GetterFunction<z.infer<typeof Parameters>> = {
  type: 'vm_file',
  summary: 'A file of the guest',
  parameters: Parameters,
  async get({ path, gives }, guest, _context, signal) {
    const paths = Array.isArray(path) ? path : [path];
    const files: (Buffer | null)[] = [];
    for (const [index, name] of paths.entries()) {
      if (gives.includes(index)) files.push(await read(resolveGuestPath(name, guest.account), guest, signal));
    }
    return files.length === 1 ? files[0] : files;
  },
};

async function read(path: string, guest: Guest, signal: AbortSignal): Promise<Buffer | null> {
  try {
    return await guest.readFile(path, { maxBytes: MAX_BYTES }, signal);
  } catch (error) {
    if (!(error instanceof GuestFileError)) throw error;
    if (ABSENT.has(error.code)) return null;
    throw new EvaluatorError(`the guest cannot give ${path}: ${error.message} (${error.code})`, { cause: error });
  }
}
