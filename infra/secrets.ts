import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { readJson, writePrivate } from './private-file.ts';

const Secrets = z.object({
  natsPassword: z.string().min(16),
  s3AccessKeyId: z.string().min(8),
  s3SecretAccessKey: z.string().min(16),
});
export type Secrets = z.infer<typeof Secrets>;

/** The stack's secrets: made once, kept where only we may read them, so that a shell's environment outlives a restart. */
export async function stackSecrets(file: string): Promise<Secrets> {
  const kept = await readJson(file, (value) => Secrets.parse(value));
  if (kept !== null) return kept;
  const made: Secrets = {
    natsPassword: randomBytes(18).toString('hex'),
    s3AccessKeyId: `GYMBUS${randomBytes(7).toString('hex').toUpperCase()}`,
    s3SecretAccessKey: randomBytes(20).toString('hex'),
  };
  await writePrivate(file, `${JSON.stringify(made, null, 2)}\n`);
  return made;
}
