import { z } from 'zod';
import { Flag } from '../../command/command-line.ts';
import { EvaluatorError, type GetterFunction } from '../../contract.ts';
import { type Guest, GuestFileError } from '../../guest.ts';
import { GuestPath, resolveGuestPath } from '../../guest-path.ts';
import type { ByteBudget } from '../budget.ts';

/** The guest's answers that mean: there is no such file for you to read. */
const ABSENT = new Set(['ENOENT', 'ENOTDIR', 'EISDIR', 'ELOOP', 'EACCES', 'ENAMETOOLONG']);

/** OSWorld's tasks name at most 7. */
const MOST_FILES = 64;

const oneOrMany = <T extends z.ZodType>(item: T) => z.union([item, z.array(item).min(1).max(MOST_FILES)]);
const Parameters = z
  .strictObject({
    path: oneOrMany(GuestPath),
    dest: oneOrMany(z.string().max(4_096)).optional().describe('Cache-file name; kept for the record'),
    multi: Flag.default(false),
    gives: z
      .array(z.number().int().nonnegative())
      .min(1)
      .max(MOST_FILES)
      .default([0])
      .describe('Which of several paths are compared'),
    time_suffix: Flag.optional(),
    time_format: z.string().max(256).optional(),
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
  async get({ path, gives }, guest, { budget }, signal) {
    const paths = Array.isArray(path) ? path : [path];
    const files: (Buffer | null)[] = [];
    for (const [index, name] of paths.entries()) {
      if (gives.includes(index)) files.push(await read(resolveGuestPath(name, guest.account), guest, budget, signal));
    }
    return files.length === 1 ? files[0] : files;
  },
};

async function read(path: string, guest: Guest, budget: ByteBudget, signal: AbortSignal): Promise<Buffer | null> {
  try {
    const file = await guest.readFile(path, { maxBytes: budget.left }, signal);
    budget.take(file.length);
    return file;
  } catch (error) {
    if (!(error instanceof GuestFileError)) throw error;
    if (ABSENT.has(error.code)) return null;
    const remedy = error.code === 'EFBIG' ? `: ${budget.remedy}` : '';
    throw new EvaluatorError(`the guest cannot give ${path}: ${error.message} (${error.code})${remedy}`, {
      cause: error,
    });
  }
}
